// SPDX-License-Identifier: Apache-2.0
// How the norm kernels tile a block over rows: groups of warps, one row a group, whose threads
// stride over the row's vectors. Up to 16384 columns a thread keeps its vectors in registers.
#pragma once

#include "trainer/device/cuda/kernel/block.h"
#include "trainer/device/cuda/kernel/elements.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {

// Half a warp reduces the sums of a row's warps, so a row has no more warps than that.
inline constexpr int kMaxNormWarps = kWarpSize / 2;
inline constexpr int kMaxNormThreads = kMaxNormWarps * kWarpSize;

// A block's groups of warps, and the vectors that a thread keeps.
struct NormLayout {
  int vectors = 0;  // per thread: 1, 2 or 4 in registers; 0: none kept
  int warps = 1;    // per row
  int groups = 1;   // rows at once

  int row_threads() const { return warps * kWarpSize; }
  int threads() const { return groups * row_threads(); }
};

// one_vector, two_vectors: columns up to which a thread keeps one or two vectors. threads: of a
// block, unless a row takes more.
inline NormLayout norm_layout(bool vectorizable, std::int64_t cols, std::int64_t one_vector,
                              std::int64_t two_vectors, int threads) {
  constexpr std::int64_t kFourVectors = std::int64_t{kMaxNormThreads} * 4 * kVecSize;
  NormLayout layout;
  if (vectorizable && cols <= kFourVectors)
    layout.vectors = cols <= one_vector ? 1 : cols <= two_vectors ? 2 : 4;
  const std::int64_t of_row = ceil_div(cols, std::int64_t{std::max(layout.vectors, 1)} * kVecSize);
  layout.warps =
      static_cast<int>(std::min<std::int64_t>(ceil_div(of_row, kWarpSize), kMaxNormWarps));
  layout.groups = std::max(threads / layout.row_threads(), 1);
  return layout;
}

// Calls f.operator()<R, S>(): R is the storage type of the residual stream and the parameters, S
// that of the branches.
template <class F>
void with_norm_storage(DType residual, DType branch, F&& f) {
  if (branch == DType::f32) return f.template operator()<float, float>();
  if (residual == DType::f32) return f.template operator()<float, Bf16>();
  f.template operator()<Bf16, Bf16>();
}

// A thread's place in its block: the group, which has one row, and the thread within it.
struct RowThread {
  int group;
  int first_warp;
  int thread;
  int warps;

  // Returns the first column of the thread's vector number i. Index: a type that holds the row's
  // columns.
  template <class Index>
  SIMT_FUNCTION Index column(Index i) const {
    return (i * (warps * kWarpSize) + thread) * kVecSize;
  }
};
SIMT_FUNCTION RowThread row_thread(int warps) {
  const int group = warp() / warps;
  return {group, group * warps, thread() - group * warps * kWarpSize, warps};
}

// Reduces over the threads of a row: each of them gets the sum. Consecutive calls must alternate
// between buffers 0 and 1: then the sync() of one call separates the reads of the call before from
// the writes of the next.
SIMT_FUNCTION float row_reduce(float value, int buffer, RowThread at) {
  SIMT_SHARED(float, warp_values, 2 * kMaxNormWarps);
  float* const sums = warp_values + buffer * kMaxNormWarps;
  value = warp_reduce(value, Sum{});
  if (lane() == 0) sums[warp()] = value;
  sync();
  return warp_reduce(lane() < at.warps ? sums[at.first_warp + lane()] : 0.0F, Sum{});
}

// Two sums at once: the lower half of each warp reduces a, the upper half b.
struct Float2 {
  float a;
  float b;
};
SIMT_FUNCTION float half_warp_reduce(float value) {
  SIMT_UNROLL
  for (int lanes = kWarpSize / 4; lanes > 0; lanes /= 2) value += shuffle_xor(value, lanes);
  return value;
}
SIMT_FUNCTION Float2 row_reduce(Float2 value, int buffer, RowThread at) {
  SIMT_SHARED(float, warp_values, 4 * kMaxNormWarps);
  constexpr int kHalf = kWarpSize / 2;
  const bool upper = lane() >= kHalf;
  const int of_half = lane() % kHalf;
  float* const sums = warp_values + (2 * buffer + (upper ? 1 : 0)) * kMaxNormWarps;
  const float other = shuffle_xor(upper ? value.a : value.b, kHalf);
  const float half = half_warp_reduce((upper ? value.b : value.a) + other);
  if (of_half == 0) sums[warp()] = half;
  sync();
  const float mine = half_warp_reduce(of_half < at.warps ? sums[at.first_warp + of_half] : 0.0F);
  const float others = shuffle_xor(mine, kHalf);
  return upper ? Float2{others, mine} : Float2{mine, others};
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
