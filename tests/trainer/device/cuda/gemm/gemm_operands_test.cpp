// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/gemm/gemm_operands.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/trainer/device/cuda/gemm/gemm_bench.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::cuda;
using tessera::trainer::test::Memory;

namespace {

struct Range {
  const std::byte* begin;
  const std::byte* end;
};

Range range(const void* data, std::int64_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  return {begin, begin + bytes};
}

std::vector<Range> ranges(const GemmShape& s, const GemmOperands& set) {
  std::vector<Range> all{range(set.a, bytes_of(matrix_a(s), s.batch)),
                         range(set.b, bytes_of(matrix_b(s), s.batch)),
                         range(set.d, bytes_of(matrix_d(s), s.batch))};
  if (s.bias) all.push_back(range(set.bias, s.n * bytes_of(s.out)));
  if (s.epilogue != GemmEpilogue::none) all.push_back(range(set.pre, bytes_of(matrix_pre(s), 1)));
  return all;
}

bool is_aligned(const void* data, int alignment) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto bytes = static_cast<std::uintptr_t>(alignment);
  return address % bytes == 0 && (alignment == 256 || address % (2 * bytes) != 0);
}

// Returns whether all are finite and no larger than a few million normal numbers get.
bool are_moderate(const std::vector<float>& numbers) {
  return std::ranges::all_of(numbers, [](float x) { return std::abs(x) < 7; });
}

std::vector<GemmShape> shapes() {
  return {
      {.m = 300, .n = 96, .k = 64, .lda = 64, .ldb = 64, .ldd = 96},
      {.m = 37,
       .n = 23,
       .k = 19,
       .lda = 21,
       .ldb = 20,
       .ldd = 29,
       .bias = true,
       .align_a = 2,
       .align_b = 128,
       .align_d = 16,
       .align_bias = 2},
      {.m = 96,
       .n = 64,
       .k = 300,
       .lda = 96,
       .ldb = 64,
       .ldd = 64,
       .transpose_a = true,
       .transpose_b = false,
       .out = DType::f32,
       .accumulate = true,
       .align_d = 4},
      {.m = 16,
       .n = 32,
       .k = 8,
       .lda = 64,
       .ldb = 64,
       .ldd = 32,
       .out = DType::f32,
       .batch = 5,
       .stride_a = 8,
       .stride_b = 0,
       .stride_d = 512},
      {.m = 4,
       .n = 300,
       .k = 8,
       .lda = 8,
       .ldb = 8,
       .ldd = 300,
       .in = DType::f32,
       .out = DType::f32,
       .bias = true},
      {.m = 37,
       .n = 23,
       .k = 19,
       .lda = 21,
       .ldb = 20,
       .ldd = 29,
       .bias = true,
       .epilogue = GemmEpilogue::gelu,
       .align_d = 4,
       .align_bias = 8,
       .ld_pre = 32,
       .align_pre = 16},
      {.m = 300,
       .n = 96,
       .k = 64,
       .lda = 64,
       .ldb = 96,
       .ldd = 96,
       .transpose_b = false,
       .epilogue = GemmEpilogue::dgelu,
       .ld_pre = 96},
  };
}

}  // namespace

TEST_CASE("sets of operands share no byte, stay in their memory and are aligned as asked") {
  constexpr std::int64_t kCache = 100'000;
  for (const GemmShape& s : shapes()) {
    CAPTURE(to_text(s));
    const Memory memory(static_cast<std::size_t>(gemm_trial_bytes(s, kCache)));
    const auto sets = gemm_operand_sets(s, memory.bytes(), kCache);
    REQUIRE_FALSE(sets.empty());
    std::vector<Range> all;
    for (const GemmOperands& set : sets) {
      const auto of = ranges(s, set);
      all.insert(all.end(), of.begin(), of.end());
      CHECK(is_aligned(set.a, s.align_a));
      CHECK(is_aligned(set.b, s.align_b));
      CHECK(is_aligned(set.d, s.align_d));
      if (s.bias) {
        CHECK(is_aligned(set.bias, s.align_bias));
      } else {
        CHECK(set.bias == nullptr);
      }
      if (s.epilogue != GemmEpilogue::none) {
        CHECK(is_aligned(set.pre, s.align_pre));
      } else {
        CHECK(set.pre == nullptr);
      }
    }
    std::ranges::sort(all, {}, &Range::begin);
    CHECK(all.front().begin >= memory.bytes().data());
    CHECK(all.back().end <= memory.bytes().data() + memory.bytes().size());
    for (std::size_t i = 1; i < all.size(); ++i) CHECK(all[i - 1].end <= all[i].begin);
    // One round touches four times the cache, and not much more than needed.
    CHECK(static_cast<std::int64_t>(sets.size()) * gemm_set_bytes(s) >= 4 * kCache);
    CHECK(static_cast<std::int64_t>(sets.size() - 1) * gemm_set_bytes(s) < 4 * kCache);
  }
}

TEST_CASE("operands larger than the cache need one set") {
  const GemmShape s = shapes()[0];
  CHECK(gemm_trial_bytes(s, 1000) == gemm_set_bytes(s));
  const Memory memory(static_cast<std::size_t>(gemm_set_bytes(s)));
  CHECK(gemm_operand_sets(s, memory.bytes(), 1000).size() == 1);
}

TEST_CASE("less memory means fewer sets, too little none") {
  const GemmShape s = shapes()[1];
  const std::int64_t set = gemm_set_bytes(s);
  const Memory memory(static_cast<std::size_t>(3 * set - 1));
  CHECK(gemm_operand_sets(s, memory.bytes(), 1'000'000).size() == 2);
  CHECK(gemm_operand_sets(s, memory.bytes().first(static_cast<std::size_t>(set - 1)), 1'000'000)
            .empty());
  CHECK(gemm_operand_sets(s, {}, 1'000'000).empty());
}

TEST_CASE("random numbers are normal in both dtypes, and finite however they are read") {
  const auto check_normal = [](const std::vector<float>& numbers) {
    double sum = 0;
    double squares = 0;
    CHECK(are_moderate(numbers));
    for (const float x : numbers) {
      sum += x;
      squares += static_cast<double>(x) * x;
    }
    const auto count = static_cast<double>(numbers.size());
    CHECK(std::abs(sum / count) < 5 / std::sqrt(count));
    CHECK(std::abs(squares / count - 1) < 5 * std::sqrt(2 / count));
  };
  const std::vector<std::byte> bf16 = gemm_random_numbers(DType::bf16);
  std::vector<float> numbers(bf16.size() / 2);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bf16.data() + 2 * i, 2);
    numbers[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  check_normal(numbers);
  std::vector<float> pairs(bf16.size() / 4);
  std::memcpy(pairs.data(), bf16.data(), 4 * pairs.size());
  CHECK(are_moderate(pairs));

  const std::vector<std::byte> f32 = gemm_random_numbers(DType::f32);
  std::vector<float> wide(f32.size() / 4);
  std::memcpy(wide.data(), f32.data(), 4 * wide.size());
  check_normal(wide);
  // A bf16 number is the f32 number, rounded: within half of one part in 2^7 of its power of two.
  int wrong = 0;
  for (std::size_t i = 0; i < wide.size(); ++i)
    wrong += std::abs(numbers[i] - wide[i]) <= std::abs(wide[i]) / 256 ? 0 : 1;
  CHECK(wrong == 0);
}

TEST_CASE("the period of random numbers keeps their alignment and fits no usual row") {
  const std::size_t bytes = gemm_random_numbers(DType::bf16).size();
  CHECK(bytes % 16 == 0);
  for (const std::size_t row : {128, 1024, 2048, 4096, 5120, 12288, 16384, 50432})
    CHECK(std::gcd(bytes, 2 * row) <= 16);
}
