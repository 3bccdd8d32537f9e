// SPDX-License-Identifier: Apache-2.0
// How many steps a run takes: as many as asked for, or more if those end too soon for a GPU to be
// warm and a figure to be stable (docs/formats.md, "Run log"). Pure: it gets durations and has no
// clock.
#pragma once

#include <cstdint>

namespace tessera::trainer {

// Rules for the number of steps, which count from 1. If all minima are 0, the steps are exactly
// those asked for.
struct PaceRules {
  std::int64_t steps = 0;   // asked for in all; more than `warmup`
  std::int64_t warmup = 0;  // of these, not measured
  std::int64_t least_warmup = 0;
  std::int64_t least_measured = 0;
  double least_warmup_s = 0;
  double least_measured_s = 0;
  std::int64_t most = 0;  // steps in all, unless more were asked for
};

// Returns rules for exactly the steps asked for.
PaceRules exact_pace(std::int64_t steps, std::int64_t warmup);
// Returns a GPU's rules: at least 3 steps and 5 s of warm-up, 10 steps and 15 s measured, at most
// 2,000 steps.
PaceRules gpu_pace(std::int64_t steps, std::int64_t warmup);

class Pace {
 public:
  explicit Pace(const PaceRules& rules);

  // Takes the duration of the next step that has ended. True if the step was warm-up.
  bool take(double seconds);
  // Returns whether to train step `issued` + 1, given the steps that have ended. Once false for a
  // number, it stays so.
  bool wants_more(std::int64_t issued) const;
  // Returns whether `step` is known to be measured; it may still be running.
  bool is_measured(std::int64_t step) const;

  bool is_exact() const;
  std::int64_t most_steps() const { return most_; }

 private:
  bool is_warm() const { return warmup_ >= 0; }
  void end_warmup_if_due();

  PaceRules rules_;
  std::int64_t most_ = 0;
  std::int64_t latest_warmup_ = 0;  // steps after which the warm-up ends in any case
  std::int64_t warmup_ = -1;        // its steps, once it is over
  std::int64_t taken_ = 0;
  double seconds_ = 0;  // of the warm-up until it is over, then of the measured steps
};

}  // namespace tessera::trainer
