// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/sum.h"

#include <algorithm>
#include <array>
#include <bit>

namespace tessera::trainer::comm {
namespace {

float load(float x) {
  return x;
}
double load(double x) {
  return x;
}
float load(std::uint16_t bf16) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bf16) << 16);
}

template <class S, class C>
S rounded(C x) {
  if constexpr (sizeof(S) == sizeof(C)) {
    return x;
  } else {
    // Rounds to nearest even: the addend carries into the upper half exactly if that is nearer. A
    // NaN stays a NaN: it comes from a bf16 or from the CPU, so its lower half is zero and does not
    // carry.
    const auto bits = std::bit_cast<std::uint32_t>(x);
    return static_cast<S>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
  }
}

template <class S, class C>
void sum(std::span<const std::byte* const> sources, std::int64_t elements,
         std::span<std::byte* const> results) {
  constexpr std::int64_t kBlock = 2048;  // a block's sums stay in the L1 cache
  std::array<C, kBlock> sums;
  for (std::int64_t first = 0; first < elements; first += kBlock) {
    const auto count = static_cast<std::size_t>(std::min(kBlock, elements - first));
    // Starts from the first source, not from zero: 0 + -0 would change a sign.
    const S* const source0 = reinterpret_cast<const S*>(sources[0]) + first;
    for (std::size_t i = 0; i < count; ++i) sums[i] = load(source0[i]);
    for (const std::byte* bytes : sources.subspan(1)) {
      const S* const source = reinterpret_cast<const S*>(bytes) + first;
      for (std::size_t i = 0; i < count; ++i) sums[i] += load(source[i]);
    }
    for (std::byte* bytes : results) {
      S* const result = reinterpret_cast<S*>(bytes) + first;
      for (std::size_t i = 0; i < count; ++i) result[i] = rounded<S>(sums[i]);
    }
  }
}

}  // namespace

void sum_in_order(DType dtype, std::span<const std::byte* const> sources, std::int64_t elements,
                  std::span<std::byte* const> results) {
  switch (dtype) {
    case DType::f64:
      return sum<double, double>(sources, elements, results);
    case DType::f32:
      return sum<float, float>(sources, elements, results);
    case DType::bf16:
      return sum<std::uint16_t, float>(sources, elements, results);
    case DType::i32:
      return;
  }
}

}  // namespace tessera::trainer::comm
