// SPDX-License-Identifier: Apache-2.0
// Splits a stream of chunks into lines, without ever holding more than one line that could be a
// record.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tessera::runlog {

class LineScanner {
 public:
  // `line` gets each line without its line feed (and without the carriage return before it).
  // `too_long` gets the beginning of a line that is longer than any record.
  LineScanner(std::function<void(std::string_view)> line,
              std::function<void(std::string_view)> too_long);

  void feed(std::string_view chunk);
  void finish();  // the last line may lack its line feed

 private:
  void take(std::string_view piece);
  void end_line();

  std::function<void(std::string_view)> line_;
  std::function<void(std::string_view)> too_long_;
  std::string pending_;
  bool overlong_ = false;
};

}  // namespace tessera::runlog
