// SPDX-License-Identifier: Apache-2.0
// Statistics of a run's steps: one function for the trainer's footer and for collect, so that both
// say the same.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace tessera::runlog {

// One optimizer step. `seconds` runs from the end of the step before (for the first: from the
// start) to its own end, data wait inside, so that the seconds of the measured steps add up to the
// measured span.
struct StepSample {
  std::int64_t step = 0;  // from 1
  bool warmup = false;
  double seconds = 0;
  std::int64_t tokens = 0;  // of the global batch
  double loss = 0;          // mean over loss tokens
  double grad_norm = 0;     // before clipping
  double data_wait_s = 0;
  std::optional<double> issue_s;  // of the host, to hand the step to a GPU; without its data
  bool skipped = false;           // no update was made
};

struct StepStatistics {
  std::int64_t warmup = 0;    // steps not measured
  std::int64_t measured = 0;  // steps measured
  double measured_s = 0;      // span of the measured steps
  std::int64_t tokens = 0;    // of the measured steps
  double data_wait_s = 0;     // of the measured steps
  std::int64_t skipped = 0;   // of all steps
  // Seconds of the measured steps; absent without any. Percentiles are by nearest rank, the median
  // is the lower one.
  std::optional<double> median_s, mean_s, p5_s, p95_s;
  std::optional<double> issue_median_s;                         // of those that have it
  std::optional<double> loss_first, loss_last, grad_norm_last;  // of all steps
};

StepStatistics statistics(std::span<const StepSample> steps);

}  // namespace tessera::runlog
