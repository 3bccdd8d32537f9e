// How many steps a run takes: as many as asked for, or longer where those are over too soon for a
// GPU to be warm and a figure to be stable (docs/formats.md, "Run log"). Pure: it knows durations,
// no clock.
#pragma once

#include <cstdint>

namespace tessera::trainer {

// Steps count from 1. With all minima 0 the steps are exactly those asked for.
struct PaceRules {
  std::int64_t steps = 0;   // asked for, in all; more than `warmup`
  std::int64_t warmup = 0;  // of them not measured
  std::int64_t least_warmup = 0;
  std::int64_t least_measured = 0;
  double least_warmup_s = 0;
  double least_measured_s = 0;
  std::int64_t most = 0;  // steps in all; what was asked for may be more
};

// Exactly the steps asked for.
PaceRules exact_pace(std::int64_t steps, std::int64_t warmup);
// Those of a GPU: at least 3 steps and 5 s of warm-up, 10 steps and 15 s measured, 2,000 in all.
PaceRules gpu_pace(std::int64_t steps, std::int64_t warmup);

class Pace {
 public:
  explicit Pace(const PaceRules& rules);

  // Takes the duration of the next step that has ended. True if the step was warm-up.
  bool take(double seconds);
  // Whether step `issued` + 1 is to be trained, by what is known of the steps that have ended. Once
  // false for a number, it stays so.
  bool wants_more(std::int64_t issued) const;
  // Whether `step` is known to be measured; steps may still be running.
  bool is_measured(std::int64_t step) const;

  bool is_exact() const;
  std::int64_t most_steps() const { return most_; }

 private:
  bool is_warm() const { return warmup_ >= 0; }
  void end_warmup_if_due();

  PaceRules rules_;
  std::int64_t most_ = 0;
  std::int64_t latest_warmup_ = 0;  // steps after which the warm-up ends, however short
  std::int64_t warmup_ = -1;        // steps of it, once it is over
  std::int64_t taken_ = 0;
  double seconds_ = 0;  // of the warm-up while it lasts, then of the measured steps
};

}  // namespace tessera::trainer
