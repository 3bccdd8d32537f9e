// How the norms' kernels lay a block over rows: groups of warps, each with a row, whose threads
// take a pack of it in turn. Up to 16384 columns a thread keeps its packs in registers.
#pragma once

#include "trainer/device/cuda/kernel/block.h"
#include "trainer/device/cuda/kernel/elements.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {

// Half a warp adds the sums of a row's warps, so there are no more of them.
inline constexpr int kMostNormWarps = kWarp / 2;
inline constexpr int kMostNormThreads = kMostNormWarps * kWarp;

// A block's groups, and what a thread holds.
struct NormLayout {
  int packs = 0;   // of a thread: 1, 2 or 4; 0: as many as come, none held
  int warps = 1;   // of a row
  int groups = 1;  // rows at once

  int row_threads() const { return warps * kWarp; }
  int threads() const { return groups * row_threads(); }
};

// one_pack, two_packs: columns up to which a thread holds so many packs. threads: of a block, where
// a row takes no more.
inline NormLayout norm_layout(bool packed, std::int64_t cols, std::int64_t one_pack,
                              std::int64_t two_packs, int threads) {
  constexpr std::int64_t kFourPacks = std::int64_t{kMostNormThreads} * 4 * kPack;
  NormLayout layout;
  if (packed && cols <= kFourPacks) layout.packs = cols <= one_pack ? 1 : cols <= two_packs ? 2 : 4;
  const std::int64_t of_row = ceil_div(cols, std::int64_t{std::max(layout.packs, 1)} * kPack);
  layout.warps = static_cast<int>(std::min<std::int64_t>(ceil_div(of_row, kWarp), kMostNormWarps));
  layout.groups = std::max(threads / layout.row_threads(), 1);
  return layout;
}

// f.operator()<R, S>(): the storage types of the residual stream and the parameters, and of the
// branches.
template <class F>
void with_norm_storage(DType residual, DType branch, F&& f) {
  if (branch == DType::f32) return f.template operator()<float, float>();
  if (residual == DType::f32) return f.template operator()<float, Bf16>();
  f.template operator()<Bf16, Bf16>();
}

// A thread's place: which row of those that the block has at once, which thread of that row.
struct InRow {
  int group;
  int first_warp;
  int thread;
  int warps;

  // First column of its pack number i; Index: what holds the row's columns.
  template <class Index>
  SIMT_FUNCTION Index column(Index i) const {
    return (i * (warps * kWarp) + thread) * kPack;
  }
};
SIMT_FUNCTION InRow in_row(int warps) {
  const int group = warp() / warps;
  return {group, group * warps, thread() - group * warps * kWarp, warps};
}

// Sums over the threads of the row, in each of them. Calls in a row must take buffers 0 and 1 in
// turn: the sync() of one comes between the reads of the one before and the writes of the next.
SIMT_FUNCTION float over_row(float value, int buffer, InRow at) {
  SIMT_SHARED(float, of_warp, 2 * kMostNormWarps);
  float* const sums = of_warp + buffer * kMostNormWarps;
  value = over_warp(value, Sum{});
  if (lane() == 0) sums[warp()] = value;
  sync();
  return over_warp(lane() < at.warps ? sums[at.first_warp + lane()] : 0.0F, Sum{});
}

// Two at once: the lower half of each warp adds a, the upper b.
struct Two {
  float a;
  float b;
};
SIMT_FUNCTION float over_half_warp(float value) {
  SIMT_UNROLL
  for (int lanes = kWarp / 4; lanes > 0; lanes /= 2) value += shuffle_xor(value, lanes);
  return value;
}
SIMT_FUNCTION Two over_row(Two value, int buffer, InRow at) {
  SIMT_SHARED(float, of_warp, 4 * kMostNormWarps);
  constexpr int kHalf = kWarp / 2;
  const bool upper = lane() >= kHalf;
  const int of_half = lane() % kHalf;
  float* const sums = of_warp + (2 * buffer + (upper ? 1 : 0)) * kMostNormWarps;
  const float other = shuffle_xor(upper ? value.a : value.b, kHalf);
  const float half = over_half_warp((upper ? value.b : value.a) + other);
  if (of_half == 0) sums[warp()] = half;
  sync();
  const float mine = over_half_warp(of_half < at.warps ? sums[at.first_warp + of_half] : 0.0F);
  const float others = shuffle_xor(mine, kHalf);
  return upper ? Two{others, mine} : Two{mine, others};
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
