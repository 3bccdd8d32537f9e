// SPDX-License-Identifier: Apache-2.0
// When a run has warmed up and measured enough, for durations that the test gives.
#include "trainer/train/pace.h"

#include <doctest/doctest.h>

#include <vector>

using namespace tessera::trainer;

namespace {

struct Counts {
  std::int64_t warmup = 0;
  std::int64_t measured = 0;
  double warmup_s = 0;
  double measured_s = 0;
  bool operator==(const Counts&) const = default;
};

// Follows the rules as the loop does: at most two steps ahead, and every step that began is taken.
template <class Duration>
Counts follow(const PaceRules& rules, Duration duration) {
  Pace pace(rules);
  Counts counts;
  std::int64_t issued = 0;
  std::int64_t taken = 0;
  const auto take = [&](std::int64_t step) {
    const double seconds = duration(step);
    const bool warmup = pace.take(seconds);
    CHECK(pace.is_measured(step) == !warmup);
    ++(warmup ? counts.warmup : counts.measured);
    (warmup ? counts.warmup_s : counts.measured_s) += seconds;
  };
  while (pace.wants_more(issued)) {
    if (issued - taken >= 2) {
      take(++taken);
    } else {
      ++issued;
    }
  }
  while (taken < issued) take(++taken);
  CHECK(issued <= pace.most_steps());
  CHECK_FALSE(pace.wants_more(issued));
  return counts;
}

Counts follow_each(const PaceRules& rules, double seconds) {
  return follow(rules, [=](std::int64_t) { return seconds; });
}

}  // namespace

TEST_CASE("without minima the steps are those asked for, whatever they take") {
  for (const double seconds : {1e-6, 0.5, 100.0}) {
    const Counts counts = follow_each(exact_pace(30, 10), seconds);
    CHECK(counts.warmup == 10);
    CHECK(counts.measured == 20);
  }
  CHECK(follow_each(exact_pace(1, 0), 1).measured == 1);
  CHECK(Pace(exact_pace(30, 10)).most_steps() == 30);
  CHECK(Pace(exact_pace(30, 10)).is_exact());
}

TEST_CASE("steps that are long enough are not extended on a GPU") {
  // 10 steps of 1 s are over 5 s, 20 of them over 15 s.
  const Counts counts = follow_each(gpu_pace(30, 10), 1.0);
  CHECK(counts.warmup == 10);
  CHECK(counts.measured == 20);
  CHECK_FALSE(Pace(gpu_pace(30, 10)).is_exact());
}

TEST_CASE("short steps are extended to 5 s of warm-up and 15 s measured, two steps over at most") {
  // An eighth of a second is exact in binary, so sums are exact too.
  const Counts counts = follow_each(gpu_pace(30, 10), 0.125);
  CHECK(counts.warmup == 40);
  CHECK(counts.warmup_s == 5);
  CHECK(counts.measured >= 120);
  CHECK(counts.measured <= 122);
  CHECK(counts.measured_s >= 15);
}

TEST_CASE("a slow first step is warm-up, and warm-up by seconds alone is not enough") {
  const Counts counts =
      follow(gpu_pace(30, 10), [](std::int64_t step) { return step == 1 ? 8.0 : 1.0; });
  CHECK(counts.warmup == 10);
  CHECK(counts.measured == 20);
}

TEST_CASE("a run of 2,000 steps at most keeps a quarter of them as warm-up") {
  const Counts counts = follow_each(gpu_pace(30, 10), 1e-4);
  CHECK(counts.warmup == 500);
  CHECK(counts.measured == 1500);
  // More steps were asked for than the maximum: none is cut, and all of them are measured.
  const Counts many = follow_each(gpu_pace(3000, 2990), 1e-4);
  CHECK(many.warmup == 2990);
  CHECK(many.measured == 10);
  const Counts most = follow_each(gpu_pace(3000, 10), 1e-4);
  CHECK(most.measured == 2990);
}

TEST_CASE("at least 3 steps of warm-up and 10 measured, however long they take") {
  const Counts counts = follow_each(gpu_pace(2, 1), 60);
  CHECK(counts.warmup == 3);
  CHECK(counts.measured == 10);
  CHECK(follow_each(gpu_pace(20, 0), 60).warmup == 3);
}

TEST_CASE("which step is the first measured one is known when warm-up is over") {
  Pace pace(gpu_pace(30, 10));
  for (int step = 1; step < 10; ++step) CHECK(pace.take(1));
  CHECK_FALSE(pace.is_measured(11));
  CHECK(pace.take(1));
  CHECK(pace.is_measured(11));
  CHECK_FALSE(pace.is_measured(10));
  CHECK_FALSE(pace.take(1));
  const Pace exact(exact_pace(30, 10));
  CHECK(exact.is_measured(11));
  CHECK_FALSE(exact.is_measured(10));
}
