// Sums over rows: a block sums a part of them (lib/memory/parts.h), then the parts are added. Which
// sums are added in which order depends on the shape alone.
#pragma once

#include "trainer/device/cuda/kernel/elements.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {

// Those of a part, as part_begin() has them: `parts` is row_parts(rows).
struct RowRange {
  std::int64_t begin;
  std::int64_t end;
};
SIMT_FUNCTION RowRange rows_of_part(std::int64_t rows, std::int64_t part, std::int64_t parts) {
  return {rows * part / parts, rows * (part + 1) / parts};
}

// Adds the packs of a block's `groups` groups of `threads` threads, in their order: thread
// `of_group` of the first group gets the sum over all threads of that number.
template <int kMostThreads>
SIMT_FUNCTION void add_groups(float (&pack)[kPack], int group, int groups, int of_group,
                              int threads) {
  SIMT_SHARED(Words, of_thread, 2 * kMostThreads);
  sync();
  SIMT_UNROLL
  for (int half = 0; half < 2; ++half) {
    Words words;
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) words.at[i] = as_bits(pack[half * 4 + i]);
    of_thread[half * kMostThreads + thread()] = words;
  }
  sync();
  if (group > 0) return;
  for (int other = 1; other < groups; ++other) {
    SIMT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const Words words = load_words(&of_thread[half * kMostThreads + other * threads + of_group]);
      SIMT_UNROLL
      for (int i = 0; i < 4; ++i) pack[half * 4 + i] += as_float(words.at[i]);
    }
  }
}

// On the host: first [1, cols] f32 (+)= the sum over `parts` rows of cols elements of `partials`;
// second, if given, that over the `parts` rows behind them.
void sum_parts(const float* partials, std::int64_t parts, const Tensor& first, const Tensor& second,
               bool accumulate, const Launch& where);

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
