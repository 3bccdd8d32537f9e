// SPDX-License-Identifier: Apache-2.0
#include "lib/runlog/steps.h"

#include <doctest/doctest.h>

#include <vector>

using namespace tessera::runlog;

namespace {

std::vector<StepSample> steps_of(std::initializer_list<double> seconds, int warmup) {
  std::vector<StepSample> steps;
  for (const double s : seconds) {
    const auto step = static_cast<std::int64_t>(steps.size()) + 1;
    steps.push_back({.step = step,
                     .warmup = step <= warmup,
                     .seconds = s,
                     .tokens = 100,
                     .loss = 12.0 - s,
                     .grad_norm = s,
                     .data_wait_s = 0.25});
  }
  return steps;
}

}  // namespace

TEST_CASE("only measured steps count, and their seconds add up to the span") {
  const auto steps = steps_of({9, 8, 1, 2, 3, 4}, 2);
  const StepStatistics s = statistics(steps);
  CHECK(s.warmup == 2);
  CHECK(s.measured == 4);
  CHECK(s.measured_s == 10);
  CHECK(s.tokens == 400);
  CHECK(s.data_wait_s == 1);
  CHECK(s.median_s == 2);  // the lower one
  CHECK(s.mean_s == 2.5);
  CHECK(s.p5_s == 1);
  CHECK(s.p95_s == 4);
  CHECK(s.loss_first == 3);  // of all steps, warm-up too
  CHECK(s.loss_last == 8);
  CHECK(s.grad_norm_last == 4);
}

// Nearest-rank percentiles of 1..100 are 5 and 95 by definition.
TEST_CASE("percentiles are by nearest rank") {
  std::vector<StepSample> steps;
  for (int i = 100; i >= 1; --i)
    steps.push_back({.step = 101 - i, .seconds = static_cast<double>(i), .tokens = 1});
  const StepStatistics s = statistics(steps);
  CHECK(s.p5_s == 5);
  CHECK(s.median_s == 50);
  CHECK(s.p95_s == 95);
}

TEST_CASE("without measured steps nothing is claimed") {
  const auto warmup_only = steps_of({1, 2}, 2);
  const StepStatistics s = statistics(warmup_only);
  CHECK(s.measured == 0);
  CHECK_FALSE(s.median_s.has_value());
  CHECK_FALSE(statistics({}).loss_first.has_value());
}
