// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/shuffle.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

using namespace tessera::trainer;

namespace {

std::vector<std::int64_t> order(std::int64_t n, std::uint64_t seed, std::int64_t epoch) {
  const Shuffle shuffle(n, seed);
  std::vector<std::int64_t> all;
  for (std::int64_t place = 0; place < n; ++place) all.push_back(shuffle.at(epoch, place));
  return all;
}

}  // namespace

TEST_CASE("every epoch is a bijection, for every size") {
  for (std::int64_t n = 1; n <= 300; ++n) {
    CAPTURE(n);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<std::int64_t> seen = order(n, 17, epoch);
      std::ranges::sort(seen);
      std::vector<std::int64_t> all(static_cast<std::size_t>(n));
      std::iota(all.begin(), all.end(), 0);
      CHECK(seen == all);
    }
  }
  std::vector<std::int64_t> seen = order(1000003, 5, 9);
  std::ranges::sort(seen);
  for (std::int64_t i = 0; i < 1000003; ++i)
    if (seen[static_cast<std::size_t>(i)] != i) FAIL("not a bijection at ", i);
}

TEST_CASE("orders differ between epochs and seeds, and are the same when asked for again") {
  CHECK(order(1000, 17, 0) == order(1000, 17, 0));
  CHECK(order(1000, 17, 0) != order(1000, 17, 1));
  CHECK(order(1000, 17, 0) != order(1000, 18, 0));
  CHECK(order(1000, 17, 0) != order(1000, 17 + (std::uint64_t{1} << 32), 0));
}

TEST_CASE("each is equally likely at each place, and places are independent") {
  for (const std::int64_t n : {2, 3, 5, 12}) {
    CAPTURE(n);
    const int orders = 6000;
    std::vector<double> first(static_cast<std::size_t>(n)), step(static_cast<std::size_t>(n));
    for (int i = 0; i < orders; ++i) {
      const auto all = order(n, static_cast<std::uint64_t>(i), i % 7);
      ++first[static_cast<std::size_t>(all[0])];
      ++step[static_cast<std::size_t>((all[1] - all[0] + n) % n)];
    }
    // Within 5 standard deviations of a fair die; neighbours differ by 1 ... n - 1.
    const auto fair = [&](double count, double sides) {
      const double mean = orders / sides;
      CHECK(std::abs(count - mean) < 5 * std::sqrt(mean));
    };
    for (const double count : first) fair(count, static_cast<double>(n));
    CHECK(step[0] == 0);
    for (std::size_t i = 1; i < step.size(); ++i) fair(step[i], static_cast<double>(n - 1));
  }
  // In a long order, neighbours are on average a third of its length apart.
  const auto all = order(100000, 17, 0);
  double apart = 0;
  for (std::size_t i = 1; i < all.size(); ++i)
    apart += std::abs(static_cast<double>(all[i] - all[i - 1]));
  CHECK(apart / 1e5 / 1e5 == doctest::Approx(1.0 / 3).epsilon(0.02));
}

TEST_CASE("an order of more than 2^40 needs no memory") {
  const std::int64_t n = (std::int64_t{1} << 42) + 12345;
  const Shuffle shuffle(n, 17);
  std::set<std::int64_t> seen;
  for (std::int64_t place = n - 1000; place < n; ++place) {
    const std::int64_t at = shuffle.at(0, place);
    CHECK(at >= 0);
    CHECK(at < n);
    seen.insert(at);
  }
  CHECK(seen.size() == 1000);
}
