// Kernels of attention tiles: small matrix products in registers and the online softmax. Scores are
// kept as [keys, queries], so that a vector holds neighbouring queries and the softmax needs no sum
// across its lanes.
#pragma once

#include "trainer/device/cpu/kernel/math.h"

namespace tessera::trainer::cpu {
namespace {

// Rows of the register tile; its accumulators, one row of b and one element of a fill the
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

template <class S>
void pack_transposed(const S* src, std::int64_t ld, std::int64_t rows, std::int64_t cols,
                     Compute<S>* dst, std::int64_t ld_dst) {
  using C = Compute<S>;
  for (std::int64_t r = 0; r < rows; ++r) {
    for_vectors<C>(cols, [&](std::int64_t i, int count) __attribute__((always_inline)) {
      const Vector<C> x = load(src + r * ld + i, count);
      for (int lane = 0; lane < count; ++lane) dst[(i + lane) * ld_dst + r] = x[lane];
    });
  }
  for (std::int64_t c = 0; c < cols; ++c) {
    for (std::int64_t r = rows; r < ld_dst; ++r) dst[c * ld_dst + r] = 0;
  }
}

}  // namespace
}  // namespace tessera::trainer::cpu
