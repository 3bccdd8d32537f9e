// SPDX-License-Identifier: Apache-2.0
// One line that says how far a sweep is: done, running, failed, elapsed, remaining.
#pragma once

#include <cstdio>
#include <optional>
#include <string>

#include "apps/submit/loop/submit.h"

namespace tessera::apps {

// On a terminal the line is rewritten in place; elsewhere only messages are printed, a line each.
class ProgressLine {
 public:
  explicit ProgressLine(std::FILE* stream);
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine();

  void show(const submit::Progress& progress);
  // What is waited for, likewise.
  void waiting(const std::string& text);
  // Takes it away, for what others print.
  void clear();
  // A line that stays, above the progress line.
  void message(const std::string& text);

 private:
  bool is_time();  // to a terminal, and not at once again
  void rewrite(const std::string& text);

  std::FILE* stream_;
  std::optional<bool> terminal_;  // known once something is shown
  bool shown_ = false;
  double start_s_;
  double last_s_ = 0;
};

// Pure, for tests: the line for `progress` after `elapsed_s`, at most `width` columns.
std::string progress_text(const submit::Progress& progress, double elapsed_s, std::size_t width);

}  // namespace tessera::apps
