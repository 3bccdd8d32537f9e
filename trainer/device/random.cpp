// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/random.h"

#include <cmath>
#include <numbers>

namespace tessera::trainer {
namespace {

double unit(std::uint32_t low_bits, std::uint32_t high_bits) {
  const std::uint64_t bits = (std::uint64_t{high_bits} << 32) | low_bits;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {high_word(product1) ^ counter[1] ^ key[0], low_word(product1),
               high_word(product0) ^ counter[3] ^ key[1], low_word(product0)};
    key[0] += 0x9E3779B9;  // golden ratio
    key[1] += 0xBB67AE85;  // sqrt(3) - 1
  }
  return counter;
}

std::array<double, 2> normal_pair(std::uint64_t seed, std::uint64_t pair) {
  const auto word =
      philox({low_word(pair), high_word(pair), 0, 0}, {low_word(seed), high_word(seed)});
  const double u1 = 1.0 - unit(word[0], word[1]);  // exact: a multiple of 2^-53
  const double angle = 2.0 * std::numbers::pi * unit(word[2], word[3]);
  const double radius = std::sqrt(-2.0 * std::log(u1));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace tessera::trainer
