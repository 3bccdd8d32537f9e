// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/gemm/gemm_operands.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "trainer/device/random.h"

namespace tessera::trainer::cuda {

namespace {

// 16 times a prime: a row's size and the period have at most 16 bytes as a common divisor.
constexpr std::size_t kPeriodBytes = std::size_t{16} * 131071;
constexpr std::uint64_t kSeed = 17;

// Bytes to reserve for an operand: from the first address of its alignment to the next multiple of
// the largest alignment.
std::int64_t room(std::int64_t bytes, int alignment) {
  const std::int64_t end = bytes + (alignment % kGemmAlignment);
  return (end + kGemmAlignment - 1) / kGemmAlignment * kGemmAlignment;
}

struct Rooms {
  std::int64_t a, b, d, bias, pre;
  std::int64_t all() const { return a + b + d + bias + pre; }
};

Rooms rooms(const GemmShape& s) {
  const auto of = [&](const GemmMatrix& x) { return room(bytes_of(x, s.batch), x.alignment); };
  return {.a = of(matrix_a(s)),
          .b = of(matrix_b(s)),
          .d = of(matrix_d(s)),
          .bias = s.bias ? room(s.n * bytes_of(s.out), s.align_bias) : 0,
          .pre = s.epilogue != GemmEpilogue::none ? of(matrix_pre(s)) : 0};
}

std::int64_t wanted_sets(std::int64_t set_bytes, std::int64_t l2_bytes) {
  return std::max<std::int64_t>(1, (kGemmL2Multiple * l2_bytes + set_bytes - 1) / set_bytes);
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

template <class Number, class Convert>
std::vector<std::byte> numbers(Convert convert) {
  std::vector<std::byte> bytes(kPeriodBytes);
  std::size_t at = 0;
  for (std::uint64_t pair = 0; at < bytes.size(); ++pair) {
    for (const double normal : normal_pair(kSeed, pair)) {
      const Number number = convert(static_cast<float>(normal));
      std::memcpy(bytes.data() + at, &number, sizeof(Number));
      at += sizeof(Number);
    }
  }
  return bytes;
}

}  // namespace

std::int64_t gemm_set_bytes(const GemmShape& shape) {
  return rooms(shape).all();
}

std::int64_t gemm_trial_bytes(const GemmShape& shape, std::int64_t l2_bytes) {
  const std::int64_t set = gemm_set_bytes(shape);
  return set * wanted_sets(set, l2_bytes);
}

std::vector<GemmOperands> gemm_operand_sets(const GemmShape& shape, std::span<std::byte> memory,
                                            std::int64_t l2_bytes) {
  const Rooms of = rooms(shape);
  const std::int64_t fit = static_cast<std::int64_t>(memory.size()) / of.all();
  const std::int64_t count = std::min(fit, wanted_sets(of.all(), l2_bytes));
  std::byte* at = memory.data();
  // Returns an address that is a multiple of the alignment and of no larger one.
  const auto next = [&](std::int64_t bytes, int alignment) {
    std::byte* operand = at + (alignment % kGemmAlignment);
    at += bytes;
    return operand;
  };
  std::vector<GemmOperands> sets;
  for (std::int64_t i = 0; i < count; ++i) {
    GemmOperands set;
    set.a = next(of.a, shape.align_a);
    set.b = next(of.b, shape.align_b);
    set.d = next(of.d, shape.align_d);
    if (shape.bias) set.bias = next(of.bias, shape.align_bias);
    if (shape.epilogue != GemmEpilogue::none) set.pre = next(of.pre, shape.align_pre);
    sets.push_back(set);
  }
  return sets;
}

std::vector<std::byte> gemm_random_numbers(DType dtype) {
  if (dtype == DType::bf16) return numbers<std::uint16_t>(to_bf16);
  return numbers<float>([](float value) { return value; });
}

}  // namespace tessera::trainer::cuda
