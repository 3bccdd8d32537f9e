// SPDX-License-Identifier: Apache-2.0
#include "trainer/run/progress.h"

#include <fmt/format.h>

#include "lib/base/clock.h"

namespace tessera::trainer {

namespace {

constexpr double kStepLineSeconds = 2;

void print(std::FILE* out, const std::string& line) {
  std::fputs(line.c_str(), out);
  std::fflush(out);
}

}  // namespace

void Progress::begin(const sweep::RunSpec& spec, std::int64_t planned_bytes, bool exact) {
  steps_ = fmt::format("{}{}", spec.point.steps, exact ? "" : "+");
  print(out_,
        fmt::format("{}: {}{} steps, {:.2f} GiB planned\n", spec.run, exact ? "" : "at least ",
                    spec.point.steps, static_cast<double>(planned_bytes) / (1 << 30)));
  last_s_ = monotonic_seconds();
}

void Progress::step(const runlog::StepSample& sample) {
  const double now = monotonic_seconds();
  if (now - last_s_ < kStepLineSeconds) return;
  last_s_ = now;
  print(out_, fmt::format("step {}/{}{}  loss {:.4f}  {:.0f} tokens/s\n", sample.step, steps_,
                          sample.warmup ? " (warm-up)" : "", sample.loss,
                          static_cast<double>(sample.tokens) / sample.seconds));
}

void Progress::say(const std::string& text) {
  print(out_, text);
}

void Progress::end(const runlog::Footer& footer) {
  std::string line = fmt::format("{}", to_text(footer.status));
  // The reason is already a line on stderr.
  const bool is_told = out_ == stderr && footer.exit_code != 0;
  if (!footer.reason.empty() && !is_told) line += fmt::format(" ({})", footer.reason);
  if (footer.steps.measured > 0) {
    line += fmt::format(": {:.0f} tokens/s over {} measured steps",
                        static_cast<double>(footer.steps.tokens) / footer.steps.measured_s,
                        footer.steps.measured);
  }
  if (footer.steps.loss_last) line += fmt::format(", loss {:.4f}", *footer.steps.loss_last);
  print(out_, line + "\n");
  if (footer.cpu_share && *footer.cpu_share < runlog::kBusyShare) {
    print(out_,
          fmt::format("its threads waited for a CPU {:.0f} % of the time: other work, or more "
                      "threads than CPUs\n",
                      100 * (1 - *footer.cpu_share)));
  }
}

}  // namespace tessera::trainer
