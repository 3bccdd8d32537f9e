// SPDX-License-Identifier: Apache-2.0
// An order of 0 ... n - 1 for each (seed, epoch), as a function. There is no table: a file of any
// size is shuffled without memory, and each place of the order can be computed alone.
#pragma once

#include <cstdint>

namespace tessera::trainer {

class Shuffle {
 public:
  Shuffle(std::int64_t n, std::uint64_t seed);  // n from 1 to 2^60

  // Returns what is at `place` (0 ... n - 1) in the order of `epoch` (from 0; 2^32 of them differ).
  // A bijection for each epoch. Allocates nothing; thread-safe.
  std::int64_t at(std::int64_t epoch, std::int64_t place) const;

 private:
  std::uint64_t n_;
  std::uint64_t seed_;
  // The smallest rectangle with n cells and about as many rows as columns; it exceeds n by less
  // than a row.
  std::uint64_t rows_;
  std::uint64_t columns_;
};

}  // namespace tessera::trainer
