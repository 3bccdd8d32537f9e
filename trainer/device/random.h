// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): 128 random
// bits for each 128-bit counter and 64-bit key, without state. And normal numbers made of them.
#pragma once

#include <array>
#include <cstdint>

namespace tessera::trainer {

// The halves of a 64-bit number, for counters and keys.
constexpr std::uint32_t low_word(std::uint64_t x) {
  return static_cast<std::uint32_t>(x);
}
constexpr std::uint32_t high_word(std::uint64_t x) {
  return static_cast<std::uint32_t>(x >> 32);
}

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key);

// Returns standard normal numbers 2 `pair` and 2 `pair` + 1 of the sequence `seed`, by Box-Muller
// in f64: counter (pair, 0), key seed. The first two words give u1 in (0, 1], the last two u2 in
// [0, 1), 53 bits each (low word first). The numbers are sqrt(-2 ln u1) times cos(2 pi u2) and
// sin(2 pi u2).
std::array<double, 2> normal_pair(std::uint64_t seed, std::uint64_t pair);

}  // namespace tessera::trainer
