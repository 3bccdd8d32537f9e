// SPDX-License-Identifier: Apache-2.0
#include "lib/runlog/line_scanner.h"

#include <utility>

#include "lib/runlog/record.h"

namespace tessera::runlog {

LineScanner::LineScanner(std::function<void(std::string_view)> line,
                         std::function<void(std::string_view)> too_long)
    : line_(std::move(line)), too_long_(std::move(too_long)) {}

void LineScanner::take(std::string_view piece) {
  const std::size_t room = kMaxRecordBytes - pending_.size();
  overlong_ = overlong_ || piece.size() > room;
  pending_.append(piece.substr(0, room));
}

void LineScanner::end_line() {
  if (overlong_) {
    too_long_(pending_);
  } else {
    std::string_view line = pending_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    line_(line);
  }
  pending_.clear();
  overlong_ = false;
}

void LineScanner::feed(std::string_view chunk) {
  while (!chunk.empty()) {
    const std::size_t end = chunk.find('\n');
    take(chunk.substr(0, end));
    if (end == std::string_view::npos) return;
    end_line();
    chunk.remove_prefix(end + 1);
  }
}

void LineScanner::finish() {
  if (!pending_.empty()) end_line();
}

}  // namespace tessera::runlog
