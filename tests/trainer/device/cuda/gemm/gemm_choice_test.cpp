// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/gemm/gemm_choice.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

using namespace tessera::trainer::cuda;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::optional<GemmDecision> choose_of(std::vector<GemmTiming> timings) {
  return choose(timings);
}

std::size_t index_of(std::vector<GemmTiming> timings) {
  const auto decision = choose(timings);
  REQUIRE(decision);
  return decision->index;
}

// A fake GPU: each candidate has its time of a launch, and drift slows what follows.
struct Machine {
  std::vector<double> launch_seconds;  // negative: refuses
  std::map<std::size_t, int> refuse_after;
  double drift = 0;  // slowdown of all that follows, per second of work
  std::vector<double> noise = {0};
  double cold_seconds = 0;

  double busy = 0;
  std::vector<std::pair<std::size_t, std::int64_t>> calls;
  std::map<std::size_t, int> count;

  std::optional<double> run(std::size_t candidate, std::int64_t launches) {
    calls.emplace_back(candidate, launches);
    const int before = count[candidate]++;
    const double each = launch_seconds[candidate];
    if (each < 0) return std::nullopt;
    if (refuse_after.contains(candidate) && before >= refuse_after[candidate]) return std::nullopt;
    const double share = 1 + drift * busy + noise[calls.size() % noise.size()];
    const double seconds =
        each * static_cast<double>(launches) * share + (before == 0 ? cold_seconds : 0);
    if (std::isfinite(seconds)) busy += seconds;
    return seconds;
  }

  std::vector<GemmTiming> time(double budget) {
    return time_candidates(
        launch_seconds.size(), budget,
        [this](std::size_t candidate, std::int64_t launches) { return run(candidate, launches); });
  }
};

}  // namespace

TEST_CASE("the first heuristic is left for one that takes 2 % less, not for one that takes 1.9 %") {
  CHECK(index_of({{{1.0}}, {{0.981}}}) == 0);
  CHECK(index_of({{{100}}, {{98}}}) == 1);
  CHECK(index_of({{{1.0}}, {{0.979}}}) == 1);
  CHECK(index_of({{{1.0}}, {{1.5}}}) == 0);
}

TEST_CASE("the fastest is taken, and of equally fast ones the earlier") {
  CHECK(index_of({{{1.0}}, {{0.9}}, {{0.8}}, {{0.85}}}) == 2);
  CHECK(index_of({{{1.0}}, {{0.8}}, {{0.8}}}) == 1);
  CHECK(index_of({{{1.0}}, {{1.0}}, {{1.0}}}) == 0);
  // All but one are within 2 % of the first.
  CHECK(index_of({{{1.0}}, {{0.99}}, {{0.985}}, {{0.97}}}) == 3);
}

TEST_CASE("a decision carries the medians of the chosen one and of the first") {
  const auto decision = choose_of({{{3.0, 1.0, 2.0}}, {{1.0, 1.0, 9.0, 1.2}}});
  REQUIRE(decision);
  CHECK(decision->index == 1);
  CHECK(decision->seconds == doctest::Approx(1.1));
  CHECK(decision->first_seconds == doctest::Approx(2.0));
}

TEST_CASE("samples that are no times are left out, and an algorithm of nothing else too") {
  CHECK(median({{kNaN, 2.0, kInfinity, 0.0, -1.0, 4.0}}) == doctest::Approx(3.0));
  CHECK(std::isnan(median({{kNaN, 0.0}})));
  CHECK(std::isnan(median({})));
  CHECK(index_of({{{1.0}}, {{kNaN, 0.0}}}) == 0);
  CHECK(index_of({{{kNaN}}, {{1.0}}, {{0.99}}}) == 1);
}

TEST_CASE("what failed is not chosen, and the 2 % count from the first that runs") {
  CHECK(index_of({{{0.1}, true}, {{1.0}}, {{0.99}}}) == 1);
  CHECK(index_of({{{0.1}, true}, {{1.0}}, {{0.9}}}) == 2);
  CHECK(index_of({{{1.0}}}) == 0);
  CHECK_FALSE(choose_of({{{0.1}, true}, {{}, true}}));
  CHECK_FALSE(choose_of({{}, {}}));
  CHECK_FALSE(choose_of({}));
}

TEST_CASE("timing finds the fastest through noise of 20 %, drift and cold first launches") {
  Machine machine{.launch_seconds = {1.00e-3, 0.99e-3, 0.93e-3, 1.02e-3, 0.95e-3},
                  .drift = 1.0,
                  .noise = {0.01, 0.20, 0.0, 0.02, 0.0, 0.01, 0.15},
                  .cold_seconds = 0.05};
  CHECK(index_of(machine.time(0.5)) == 2);
}

TEST_CASE("a GPU that slows down while it is measured changes no choice between equals") {
  // Timed one after another, the later candidates would look slower by far more than 2 %; the
  // first, were it measured last, would lose.
  Machine machine{.launch_seconds = std::vector<double>(8, 1e-3), .drift = 2.0};
  CHECK(index_of(machine.time(0.3)) == 0);
}

TEST_CASE("candidates take turns, each round starting with another") {
  Machine machine{.launch_seconds = {1e-3, 1e-3, 1e-3}};
  machine.time(0.03);
  // The order of launches after one cold and one estimating launch of each.
  std::vector<std::size_t> order;
  for (std::size_t i = 6; i < machine.calls.size(); ++i) order.push_back(machine.calls[i].first);
  REQUIRE(order.size() >= 9);
  CHECK(std::vector(order.begin(), order.begin() + 9) ==
        std::vector<std::size_t>{0, 1, 2, 1, 2, 0, 2, 0, 1});
}

TEST_CASE("cold launches are no samples") {
  Machine machine{.launch_seconds = {1e-3, 1e-3}, .cold_seconds = 1.0};
  for (const GemmTiming& timing : machine.time(0.1)) {
    for (const double seconds : timing.seconds) CHECK(seconds == doctest::Approx(1e-3));
  }
}

TEST_CASE("the budget is kept, whatever a launch costs, once three rounds are over") {
  for (const double seconds : {5e-6, 100e-6, 1e-3, 5e-3}) {
    CAPTURE(seconds);
    Machine machine{.launch_seconds = std::vector<double>(8, seconds)};
    const auto timings = machine.time(0.3);
    CHECK(machine.busy <= 0.3 + 1e-9);
    for (const GemmTiming& timing : timings) {
      CHECK(timing.seconds.size() >= 3);
      CHECK(timing.seconds.size() <= 25);
    }
  }
}

TEST_CASE("where three rounds of all cost too much, the slowest go without, never the first") {
  Machine machine{.launch_seconds = {28e-3, 24e-3, 20e-3, 27e-3, 26e-3, 25e-3}};
  const auto timings = machine.time(0.3);
  CHECK(timings[0].seconds.size() == 3);
  CHECK(timings[2].seconds.size() == 3);
  CHECK(timings[3].seconds.empty());
  CHECK(timings[4].seconds.empty());
  CHECK(timings[5].seconds.empty());
  CHECK(index_of(timings) == 2);
  // Twelve launches estimate, and at least three time two candidates.
  CHECK(machine.busy <= 0.3 + 0.144 + 1e-9);
}

TEST_CASE("a sample of short launches is long enough for the clock") {
  Machine machine{.launch_seconds = {10e-6, 12e-6}};
  machine.time(0.1);
  for (std::size_t i = 4; i < machine.calls.size(); ++i) CHECK(machine.calls[i].second == 20);
  Machine tiny{.launch_seconds = {1e-7, 1e-7}};
  tiny.time(0.1);
  CHECK(tiny.calls.back().second == 100);
}

TEST_CASE("what is far behind is not timed on, unless it is the first") {
  Machine machine{.launch_seconds = {3e-3, 1e-3, 1.6e-3, 1.4e-3}};
  const auto timings = machine.time(0.3);
  CHECK_FALSE(timings[0].seconds.empty());
  CHECK_FALSE(timings[1].seconds.empty());
  CHECK(timings[2].seconds.empty());
  CHECK_FALSE(timings[3].seconds.empty());
}

TEST_CASE("candidates that refuse, at once or later, are marked and asked no more") {
  Machine machine{.launch_seconds = {-1, 1e-3, 0.7e-3, 0.9e-3}, .refuse_after = {{2, 4}}};
  const auto timings = machine.time(0.1);
  CHECK(timings[0].failed);
  CHECK(machine.count[0] == 1);
  CHECK_FALSE(timings[1].failed);
  CHECK(timings[2].failed);
  CHECK(machine.count[2] == 5);
  CHECK(index_of(timings) == 3);
}

TEST_CASE("a single candidate, none, or none that runs is no trouble") {
  Machine one{.launch_seconds = {1e-3}};
  CHECK(index_of(one.time(0.1)) == 0);
  CHECK(Machine{}.time(0.1).empty());
  Machine refusing{.launch_seconds = {-1, -1}};
  CHECK_FALSE(choose_of(refusing.time(0.1)));
  // A clock that stands still must not cause an endless loop.
  Machine clockless{.launch_seconds = {0, 0}};
  CHECK_FALSE(choose_of(clockless.time(0.1)));
  Machine broken{.launch_seconds = {kNaN, 1e-3}};
  CHECK(index_of(broken.time(0.1)) == 1);
}
