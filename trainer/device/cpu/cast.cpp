// SPDX-License-Identifier: Apache-2.0
// Casts between floating dtypes. Rounded once: dst. An accumulation is summed in f32 (f64 if either
// side is f64) before that rounding.
#include <bit>
#include <cmath>
#include <cstring>

#include "trainer/device/cpu/operations.h"
#include "trainer/device/cpu/typed.h"

namespace tessera::trainer::cpu {
namespace {

// Casts between types that no kernel joins go through both compute types, at most kPiece elements
// at a time.
constexpr std::int64_t kPiece = 256;

// Rounds x to an f32 from which the store to To rounds as if from x itself. If To is f32, that is
// the nearest one. Otherwise, if x lies between two f32 numbers, it is the one with an odd last bit
// (round to odd), so that no x becomes a tie of bf16 that it is not.
template <class To>
float towards(double x) {
  const auto nearest = static_cast<float>(x);
  if constexpr (std::is_same_v<To, float>) return nearest;
  const double back = static_cast<double>(nearest);
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (back == x || !std::isfinite(x) || bits % 2 == 1) return nearest;
  return std::bit_cast<float>(std::abs(x) > std::abs(back) ? bits + 1 : bits - 1);
}

template <class From, class To>
void cast(const Kernels& kernels, const From* src, To* dst, std::int64_t n, bool accumulate) {
  const auto& from = storage<From>(kernels);
  const auto& to = storage<To>(kernels);
  if constexpr (std::is_same_v<Compute<From>, To>) {
    accumulate ? from.add_to(src, dst, n) : from.load(src, dst, n);
  } else if constexpr (std::is_same_v<From, Compute<To>>) {
    to.store(src, nullptr, dst, n, accumulate);
  } else if constexpr (std::is_same_v<From, double>) {
    for (std::int64_t begin = 0; begin < n; begin += kPiece) {
      const std::int64_t count = std::min(kPiece, n - begin);
      float sums[kPiece] = {};
      if (accumulate) to.load(dst + begin, sums, count);
      for (std::int64_t i = 0; i < count; ++i)
        sums[i] = towards<To>(src[begin + i] + static_cast<double>(sums[i]));
      to.store(sums, nullptr, dst + begin, count, false);
    }
  } else {
    if constexpr (std::is_same_v<From, To>) {
      if (!accumulate) {
        std::memcpy(dst, src, static_cast<std::size_t>(n) * sizeof(To));
        return;
      }
    }
    for (std::int64_t begin = 0; begin < n; begin += kPiece) {
      const std::int64_t count = std::min(kPiece, n - begin);
      Compute<From> read[kPiece];
      Compute<To> converted[kPiece];
      from.load(src + begin, read, count);
      for (std::int64_t i = 0; i < count; ++i) converted[i] = static_cast<Compute<To>>(read[i]);
      to.store(converted, nullptr, dst + begin, count, accumulate);
    }
  }
}

}  // namespace

void run(const Cast& op, const Context& context) {
  with_storage(op.src.dtype, [&]<class From>() {
    with_storage(op.dst.dtype, [&]<class To>() {
      for_blocks(op.src.rows, op.src.cols, [&](std::int64_t r, std::int64_t c, std::int64_t n) {
        cast<From, To>(context.kernels, row<From>(op.src, r) + c, row<To>(op.dst, r) + c, n,
                       op.accumulate);
      });
    });
  });
}

}  // namespace tessera::trainer::cpu
