// An order of 0 ... n - 1 for each (seed, epoch), as a function. There is no table: a file of any
// size is shuffled in no memory, and any place of the order can be asked for alone.
#pragma once

#include <cstdint>

namespace tessera::trainer {

class Shuffle {
 public:
  Shuffle(std::int64_t n, std::uint64_t seed);  // n from 1 to 2^60

  // What stands at `place` (0 ... n - 1) in the order of `epoch` (from 0; 2^32 of them differ). For
  // one epoch a bijection. Allocates nothing; may be called from several threads.
  std::int64_t at(std::int64_t epoch, std::int64_t place) const;

 private:
  std::uint64_t n_;
  std::uint64_t seed_;
  // The smallest rectangle of about as many rows as columns with n cells; beyond n it has less than
  // a row.
  std::uint64_t rows_;
  std::uint64_t columns_;
};

}  // namespace tessera::trainer
