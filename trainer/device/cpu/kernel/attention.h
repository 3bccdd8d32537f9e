// SPDX-License-Identifier: Apache-2.0
// Kernels of attention tiles: small GEMMs in registers and the online softmax. Scores are [keys,
// queries], so that a vector holds neighbouring queries and the softmax needs no sum across lanes.
#pragma once

#include <utility>

#include "trainer/device/cpu/kernel/math.h"

namespace tessera::trainer::cpu {
namespace {

// Rows of the register tile. Its accumulators, one row of b and one element of a fill the
// registers.
constexpr int kRows = 6;
#if defined(__AVX512F__)
constexpr int kColumns = 4;
#else
constexpr int kColumns = 2;
#endif

template <class C, int Rows, int Columns>
TESSERA_INLINE void gemm_registers(std::int64_t k, const C* a, std::int64_t a_row,
                                   std::int64_t a_col, const C* b, std::int64_t ldb, C* c,
                                   std::int64_t ldc, bool accumulate) {
  using V = Vector<C>;
  V sums[Rows][Columns];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < Columns; ++j) {
      sums[i][j] = accumulate ? load(c + i * ldc + j * kLanes<C>) : V{};
    }
  }
  for (std::int64_t l = 0; l < k; ++l) {
    V row[Columns];
#pragma GCC unroll 4
    for (int j = 0; j < Columns; ++j) row[j] = load(b + l * ldb + j * kLanes<C>);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const V element = broadcast(a[i * a_row + l * a_col]);
#pragma GCC unroll 4
      for (int j = 0; j < Columns; ++j) sums[i][j] += element * row[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < Columns; ++j) store(c + i * ldc + j * kLanes<C>, sums[i][j]);
  }
}

template <class C, int Rows>
void gemm_rows(std::int64_t n, std::int64_t k, const C* a, std::int64_t a_row, std::int64_t a_col,
               const C* b, std::int64_t ldb, C* c, std::int64_t ldc, bool accumulate) {
  std::int64_t j = 0;
  for (; j + kColumns * kLanes<C> <= n; j += kColumns * kLanes<C>) {
    gemm_registers<C, Rows, kColumns>(k, a, a_row, a_col, b + j, ldb, c + j, ldc, accumulate);
  }
  for (; j < n; j += kLanes<C>) {
    gemm_registers<C, Rows, 1>(k, a, a_row, a_col, b + j, ldb, c + j, ldc, accumulate);
  }
}

template <class C>
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const C* a, std::int64_t a_row,
          std::int64_t a_col, const C* b, std::int64_t ldb, C* c, std::int64_t ldc,
          bool accumulate) {
  std::int64_t i = 0;
  for (; i + kRows <= m; i += kRows) {
    gemm_rows<C, kRows>(n, k, a + i * a_row, a_row, a_col, b, ldb, c + i * ldc, ldc, accumulate);
  }
  a += i * a_row;
  c += i * ldc;
  switch (m - i) {
    case 5:
      gemm_rows<C, 5>(n, k, a, a_row, a_col, b, ldb, c, ldc, accumulate);
      break;
    case 4:
      gemm_rows<C, 4>(n, k, a, a_row, a_col, b, ldb, c, ldc, accumulate);
      break;
    case 3:
      gemm_rows<C, 3>(n, k, a, a_row, a_col, b, ldb, c, ldc, accumulate);
      break;
    case 2:
      gemm_rows<C, 2>(n, k, a, a_row, a_col, b, ldb, c, ldc, accumulate);
      break;
    case 1:
      gemm_rows<C, 1>(n, k, a, a_row, a_col, b, ldb, c, ldc, accumulate);
      break;
    default:
      break;
  }
}

template <class C>
void softmax_step(C* scores, std::int64_t keys, C scale, C* maximum, C* sum, C* rescale) {
  using V = Vector<C>;
  for (std::int64_t q = 0; q < kTile; q += kLanes<C>) {
    const V before = load(maximum + q);
    V largest = before;
    for (std::int64_t key = 0; key < keys; ++key) {
      const V x = load(scores + key * kTile + q) * scale;
      largest = x > largest ? x : largest;
    }
    const V factor = exp(before - largest);
    V total = load(sum + q) * factor;
    for (std::int64_t key = 0; key < keys; ++key) {
      const V p = exp(load(scores + key * kTile + q) * scale - largest);
      store(scores + key * kTile + q, p);
      total += p;
    }
    store(maximum + q, largest);
    store(sum + q, total);
    store(rescale + q, factor);
  }
}

template <class C>
void softmax_backward(C* scores, C* dp, std::int64_t keys, C scale, const C* lse,
                      const C* row_sum) {
  using V = Vector<C>;
  for (std::int64_t key = 0; key < keys; ++key) {
    for (std::int64_t q = 0; q < kTile; q += kLanes<C>) {
      const std::int64_t i = key * kTile + q;
      const V p = exp(load(scores + i) * scale - load(lse + q));
      store(scores + i, p);
      store(dp + i, p * (load(dp + i) - load(row_sum + q)) * scale);
    }
  }
}

// One step of a transposition: swaps the off-diagonal quarters of each square of 2 Step lanes by 2
// Step vectors.
template <class C, int Step, int... Lane>
TESSERA_INLINE void swap_quarters(Vector<C>& low, Vector<C>& high,
                                  std::integer_sequence<int, Lane...>) {
  constexpr int kL = kLanes<C>;
  const Vector<C> a = low;
  const Vector<C> b = high;
  low = __builtin_shufflevector(a, b, ((Lane & Step) != 0 ? kL + Lane - Step : Lane)...);
  high = __builtin_shufflevector(a, b, ((Lane & Step) != 0 ? kL + Lane : Lane + Step)...);
}

// Transposes a square of as many vectors as each has lanes.
template <class C, int Step = 1>
TESSERA_INLINE void transpose(Vector<C> (&square)[kLanes<C>]) {
  if constexpr (Step < kLanes<C>) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes<C>; ++i) {
      if ((i & Step) == 0) {
        swap_quarters<C, Step>(square[i], square[i + Step],
                               std::make_integer_sequence<int, kLanes<C>>{});
      }
    }
    transpose<C, 2 * Step>(square);
  }
}

template <class S>
void pack_transposed(const S* src, std::int64_t ld, std::int64_t rows, std::int64_t cols,
                     Compute<S>* dst, std::int64_t ld_dst) {
  using C = Compute<S>;
  constexpr int kL = kLanes<C>;
  for_vectors<C>(ld_dst, [&](std::int64_t r, int wide) __attribute__((always_inline)) {
    for_vectors<C>(cols, [&](std::int64_t c, int count) __attribute__((always_inline)) {
      Vector<C> square[kL];
      if (r + kL <= rows && count == kL) {
#pragma GCC unroll 16
        for (int i = 0; i < kL; ++i) square[i] = load(src + (r + i) * ld + c);
      } else {
        for (int i = 0; i < kL; ++i)
          square[i] = r + i < rows ? load(src + (r + i) * ld + c, count) : Vector<C>{};
      }
      transpose<C>(square);
      if (wide == kL && count == kL) {
#pragma GCC unroll 16
        for (int i = 0; i < kL; ++i) store(dst + (c + i) * ld_dst + r, square[i]);
      } else {
        for (int i = 0; i < count; ++i) store(dst + (c + i) * ld_dst + r, square[i], wide);
      }
    });
  });
}

}  // namespace
}  // namespace tessera::trainer::cpu
