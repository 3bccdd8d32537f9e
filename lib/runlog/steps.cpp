// SPDX-License-Identifier: Apache-2.0
#include "lib/runlog/steps.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tessera::runlog {

namespace {

// Nearest rank: the smallest value with at least `fraction` of all values at or below it.
double percentile(const std::vector<double>& sorted, double fraction) {
  const auto rank =
      static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

}  // namespace

StepStatistics statistics(std::span<const StepSample> steps) {
  StepStatistics result;
  std::vector<double> seconds;
  std::vector<double> issue_seconds;
  seconds.reserve(steps.size());
  for (const StepSample& step : steps) {
    if (step.skipped) ++result.skipped;
    if (step.warmup) {
      ++result.warmup;
      continue;
    }
    ++result.measured;
    result.measured_s += step.seconds;
    result.tokens += step.tokens;
    result.data_wait_s += step.data_wait_s;
    seconds.push_back(step.seconds);
    if (step.issue_s) issue_seconds.push_back(*step.issue_s);
  }
  if (!steps.empty()) {
    result.loss_first = steps.front().loss;
    result.loss_last = steps.back().loss;
    result.grad_norm_last = steps.back().grad_norm;
  }
  if (!issue_seconds.empty()) {
    std::ranges::sort(issue_seconds);
    result.issue_median_s = percentile(issue_seconds, 0.5);
  }
  if (!seconds.empty()) {
    std::ranges::sort(seconds);
    result.median_s = percentile(seconds, 0.5);
    result.p5_s = percentile(seconds, 0.05);
    result.p95_s = percentile(seconds, 0.95);
    result.mean_s = result.measured_s / static_cast<double>(result.measured);
  }
  return result;
}

}  // namespace tessera::runlog
