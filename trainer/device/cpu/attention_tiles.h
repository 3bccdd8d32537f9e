// SPDX-License-Identifier: Apache-2.0
// Shared by the two passes of causal attention: tiles of kTile queries and keys, and their
// products. Scores never exist as a whole. Nothing above the diagonal is computed, except the
// triangles of the diagonal's kStrip-wide strips.
#pragma once

#include <omp.h>

#include <algorithm>
#include <limits>

#include "trainer/device/cpu/operations.h"
#include "trainer/device/cpu/typed.h"

namespace tessera::trainer::cpu {

// head_dim rounded up to what the kernels take as columns.
inline std::int64_t padded_head(const AttentionShape& s) {
  return (s.head_dim + kStrip - 1) / kStrip * kStrip;
}

inline std::int64_t tiles(const AttentionShape& s) {
  return (s.seq + kTile - 1) / kTile;
}

// Hands out a thread's scratch piece by piece.
template <class C>
class Scratch {
 public:
  Scratch(const Context& context, std::int64_t per_thread)
      : next_(reinterpret_cast<C*>(context.workspace.data()) + omp_get_thread_num() * per_thread) {}
  C* take(std::int64_t count) {
    C* result = next_;
    next_ += count;
    return result;
  }

 private:
  C* next_;
};

template <class C>
void zero(C* x, std::int64_t n) {
  std::fill(x, x + n, C(0));
}

// Converts rows of a packed tensor to C and pads columns with zeros.
template <class S>
void pack(const StorageKernels<S>& kernels, const S* src, std::int64_t ld, std::int64_t rows,
          std::int64_t cols, Compute<S>* dst, std::int64_t ld_dst) {
  for (std::int64_t r = 0; r < rows; ++r) {
    kernels.load(src + r * ld, dst + r * ld_dst, cols);
    zero(dst + r * ld_dst + cols, ld_dst - cols);
  }
}

// Rows of a tensor as C: in place if they are C already, otherwise packed into `space`.
template <class C>
struct Rows {
  const C* data;
  std::int64_t ld;
};
template <class S>
Rows<Compute<S>> rows_as_computed(const StorageKernels<S>& kernels, const S* src, std::int64_t ld,
                                  std::int64_t rows, std::int64_t cols, Compute<S>* space,
                                  std::int64_t ld_space) {
  if constexpr (std::is_same_v<S, Compute<S>>) {
    return {src, ld};
  } else {
    pack(kernels, src, ld, rows, cols, space, ld_space);
    return {space, ld_space};
  }
}

// [keys, queries] (+)= a [keys, depth] b [depth, kTile]. On the diagonal it computes only queries
// from each strip's first key on, and scores of later keys become `masked`.
template <class C>
void score_tile(const ComputeKernels<C>& kernels, bool diagonal, std::int64_t keys,
                std::int64_t depth, const C* a, std::int64_t lda, const C* b, C* scores, C masked) {
  if (!diagonal) {
    kernels.gemm(keys, kTile, depth, a, lda, 1, b, kTile, scores, kTile, false);
    return;
  }
  for (std::int64_t key = 0; key < keys; key += kStrip) {
    kernels.gemm(std::min(kStrip, keys - key), kTile - key, depth, a + key * lda, lda, 1, b + key,
                 kTile, scores + key * kTile + key, kTile, false);
  }
  for (std::int64_t key = 0; key < keys; ++key) {
    std::fill_n(scores + key * kTile, key, masked);
  }
}

// out [queries, head] += p^T v, p [keys, kTile]. On the diagonal each strip of queries stops at its
// last key.
template <class C>
void add_over_keys(const ComputeKernels<C>& kernels, bool diagonal, std::int64_t queries,
                   std::int64_t keys, std::int64_t head, const C* p, const C* v, C* out) {
  if (!diagonal) {
    kernels.gemm(queries, head, keys, p, 1, kTile, v, head, out, head, true);
    return;
  }
  for (std::int64_t query = 0; query < queries; query += kStrip) {
    kernels.gemm(std::min(kStrip, queries - query), head, std::min(keys, query + kStrip), p + query,
                 1, kTile, v, head, out + query * head, head, true);
  }
}

// out [keys, head] += p x, x [queries, head]. On the diagonal each strip of keys starts at its
// first query.
template <class C>
void add_over_queries(const ComputeKernels<C>& kernels, bool diagonal, std::int64_t keys,
                      std::int64_t queries, std::int64_t head, const C* p, const C* x, C* out) {
  if (!diagonal) {
    kernels.gemm(keys, head, queries, p, kTile, 1, x, head, out, head, true);
    return;
  }
  for (std::int64_t key = 0; key < keys; key += kStrip) {
    kernels.gemm(std::min(kStrip, keys - key), head, queries - key, p + key * kTile + key, kTile, 1,
                 x + key * head, head, out + key * head, head, true);
  }
}

// Adds ALiBi to scores [keys, kTile] that are not scaled yet. Key 0 of the tile lies `distance`
// positions after query 0.
template <class C>
void add_alibi(const AttentionShape& s, std::int64_t q_head, std::int64_t keys,
               std::int64_t distance, C* scores) {
  if (s.alibi_bias_max == 0) return;
  const C slope = static_cast<C>(alibi_slope(q_head, s.q_heads, s.alibi_bias_max) / s.scale);
  for (std::int64_t key = 0; key < keys; ++key) {
    for (std::int64_t query = 0; query < kTile; ++query)
      scores[key * kTile + query] += slope * static_cast<C>(distance + key - query);
  }
}

// Columns of the heads in a row of qkv.
struct Columns {
  std::int64_t q, k, v;
};
inline Columns columns(const AttentionShape& s, std::int64_t q_head) {
  const std::int64_t kv_head = q_head / (s.q_heads / s.kv_heads);
  return {q_head * s.head_dim, (s.q_heads + kv_head) * s.head_dim,
          (s.q_heads + s.kv_heads + kv_head) * s.head_dim};
}

inline std::int64_t compute_bytes(DType dtype) {
  return dtype == DType::f64 ? 8 : 4;
}

}  // namespace tessera::trainer::cpu
