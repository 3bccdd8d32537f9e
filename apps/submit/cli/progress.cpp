// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>

#include "lib/base/clock.h"
#include "lib/base/terminal.h"
#include "lib/base/text.h"

namespace tessera::apps {

namespace {

constexpr double kRefresh_s = 0.2;

}  // namespace

std::string progress_text(const submit::Progress& progress, double elapsed_s, std::size_t width) {
  const int done = progress.ok + progress.failed;
  std::string text = fmt::format("{}/{} done", done, progress.total);
  if (progress.failed > 0) text += fmt::format(", {} failed", progress.failed);
  text += fmt::format(", {} running", progress.running.size());
  if (progress.pending > 0) text += fmt::format(", {} pending", progress.pending);
  text += fmt::format(", elapsed {}", duration_text(elapsed_s));
  // The mean of what is done; before the first end nothing is known.
  if (done > 0 && done < progress.total) {
    text += fmt::format(", remaining about {}",
                        duration_text(elapsed_s / done * (progress.total - done)));
  }
  if (!progress.running.empty()) text += fmt::format("  {}", progress.running.front());
  if (text.size() > width) text.resize(width);
  return text;
}

ProgressLine::ProgressLine(std::FILE* stream) : stream_(stream), start_s_(monotonic_seconds()) {}

ProgressLine::~ProgressLine() {
  clear();
}

void ProgressLine::clear() {
  if (shown_) fmt::print(stream_, "\r\x1b[K");
  shown_ = false;
  std::fflush(stream_);
}

void ProgressLine::show(const submit::Progress& progress) {
  if (!is_time()) return;
  rewrite(progress_text(progress, last_s_ - start_s_, terminal_width(stream_) - 1));
}

void ProgressLine::waiting(const std::string& text) {
  if (!is_time()) return;
  rewrite(text.substr(0, terminal_width(stream_) - 1));
}

bool ProgressLine::is_time() {
  const double now = monotonic_seconds();
  if (!terminal_) terminal_ = ::isatty(::fileno(stream_)) == 1;
  if (!*terminal_ || now - last_s_ < kRefresh_s) return false;
  last_s_ = now;
  return true;
}

void ProgressLine::rewrite(const std::string& text) {
  fmt::print(stream_, "\r\x1b[K{}", text);
  std::fflush(stream_);
  shown_ = true;
}

void ProgressLine::message(const std::string& text) {
  clear();
  fmt::print(stream_, "{}\n", text);
  std::fflush(stream_);
}

}  // namespace tessera::apps
