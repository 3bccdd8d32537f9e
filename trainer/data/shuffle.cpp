// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/shuffle.h"

#include <cmath>

#include "trainer/device/random.h"

namespace tessera::trainer {

namespace {

// Half of them move the row, half the column.
constexpr std::uint32_t kRounds = 8;

// Separates these numbers from synthetic tokens and initial parameters of the same seed.
constexpr std::uint32_t kShuffleStream = 0x73687566;

}  // namespace

Shuffle::Shuffle(std::int64_t n, std::uint64_t seed)
    : n_(static_cast<std::uint64_t>(n)),
      seed_(seed),
      rows_(static_cast<std::uint64_t>(std::ceil(std::sqrt(static_cast<double>(n))))),
      columns_((n_ + rows_ - 1) / rows_) {}

// A Feistel network on (row, column): each round adds to one of them a random function of the
// other. That can be undone, so the whole is a bijection of the rectangle. A result beyond n goes
// through again until it is below n (cycle walking, Black and Rogaway 2002), which gives a
// bijection of 0 ... n - 1.
std::int64_t Shuffle::at(std::int64_t epoch, std::int64_t place) const {
  const auto random = [&](std::uint64_t value, std::uint32_t round, std::uint64_t below) {
    const auto words = philox(
        {low_word(value), round, low_word(static_cast<std::uint64_t>(epoch)), kShuffleStream},
        {low_word(seed_), high_word(seed_)});
    return (words[0] * below) >> 32;
  };
  auto cell = static_cast<std::uint64_t>(place);
  do {
    std::uint64_t row = cell / columns_;
    std::uint64_t column = cell % columns_;
    for (std::uint32_t round = 0; round < kRounds; round += 2) {
      row = (row + random(column, round, rows_)) % rows_;
      column = (column + random(row, round + 1, columns_)) % columns_;
    }
    cell = row * columns_ + column;
  } while (cell >= n_);
  return static_cast<std::int64_t>(cell);
}

}  // namespace tessera::trainer
