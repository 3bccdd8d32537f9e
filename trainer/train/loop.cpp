// SPDX-License-Identifier: Apache-2.0
#include "trainer/train/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lib/base/clock.h"

namespace tessera::trainer {

namespace {

constexpr std::int64_t kAhead = 2;

class Loop {
 public:
  Loop(Engine& engine, Pace& pace, std::vector<runlog::StepSample>& samples,
       const LoopEvents& events)
      : engine_(engine), pace_(pace), samples_(samples), events_(events) {}

  bool issue(std::int64_t step, const std::atomic<int>& stop) {
    if (!told_ && pace_.is_measured(step)) {
      told_ = true;
      if (events_.measuring) events_.measuring();
    }
    if (step == 1) engine_.start();
    const double begin = monotonic_seconds();
    if (!engine_.issue(step, stop)) return false;
    data_seconds_[slot(step)] = engine_.data_seconds();
    issue_seconds_[slot(step)] = monotonic_seconds() - begin - engine_.data_seconds();
    if (engine_.executes_at_issue()) agreed_stop_ = engine_.agreed_stop(step);
    return true;
  }

  // Waits for the end of `step`. False if its result is not finite.
  bool take(std::int64_t step) {
    const StepResult result = engine_.result(step);
    if (agreed_stop_ == 0) agreed_stop_ = engine_.agreed_stop(step);
    const memory::Config& config = engine_.config();
    const runlog::StepSample sample{.step = step,
                                    .warmup = pace_.take(result.seconds),
                                    .seconds = result.seconds,
                                    .tokens = config.world * config.device_batch * config.seq_len,
                                    .loss = result.loss,
                                    .grad_norm = result.grad_norm,
                                    .data_wait_s = data_seconds_[slot(step)],
                                    .issue_s = engine_.executes_at_issue()
                                                   ? std::nullopt
                                                   : std::optional(issue_seconds_[slot(step)]),
                                    .skipped = !result.finite};
    samples_.push_back(sample);
    if (events_.sample) events_.sample(sample);
    return result.finite;
  }

  int agreed_stop() const { return agreed_stop_; }

 private:
  static std::size_t slot(std::int64_t step) { return static_cast<std::size_t>(step % 4); }

  Engine& engine_;
  Pace& pace_;
  std::vector<runlog::StepSample>& samples_;
  const LoopEvents& events_;
  bool told_ = false;
  int agreed_stop_ = 0;  // with several ranks
  std::array<double, 4> data_seconds_{};
  std::array<double, 4> issue_seconds_{};
};

LoopEnd not_finite(const runlog::StepSample& sample) {
  const bool loss = !std::isfinite(sample.loss);
  return {LoopEnd::Kind::not_finite, sample.step,
          fmt::format("{} is {} at step {}", loss ? "loss" : "gradient norm",
                      loss ? sample.loss : sample.grad_norm, sample.step)};
}

}  // namespace

LoopEnd train(Engine& engine, Pace& pace, const std::atomic<int>& stop,
              std::vector<runlog::StepSample>& samples, const LoopEvents& events) {
  Loop loop(engine, pace, samples, events);
  std::int64_t issued = 0;
  std::int64_t taken = 0;
  int stopped = 0;
  while (pace.wants_more(issued)) {
    stopped = loop.agreed_stop();
    if (stopped != 0) break;
    if (issued + 1 - taken > kAhead) {
      ++taken;
      if (!loop.take(taken)) return not_finite(samples.back());
      continue;  // the step that just ended may have been the last one needed
    }
    if (!loop.issue(issued + 1, stop)) {
      stopped = stop.load();
      break;
    }
    ++issued;
  }
  while (taken < issued) {
    ++taken;
    if (!loop.take(taken)) return not_finite(samples.back());
  }
  return {.kind = stopped != 0 ? LoopEnd::Kind::interrupted : LoopEnd::Kind::complete,
          .step = taken,
          .what = "",
          .signal = stopped};
}

LoopEnd train(Engine& engine, std::int64_t steps, std::int64_t warmup, const std::atomic<int>& stop,
              std::vector<runlog::StepSample>& samples,
              const std::function<void(const runlog::StepSample&)>& on_sample) {
  Pace pace(exact_pace(steps, warmup));
  return train(engine, pace, stop, samples, {.measuring = {}, .sample = on_sample});
}

}  // namespace tessera::trainer
