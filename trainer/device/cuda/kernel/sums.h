// SPDX-License-Identifier: Apache-2.0
// Reductions over rows: each block sums a part of the rows (lib/memory/parts.h), then the parts are
// added. The order of the additions depends on the shape alone.
#pragma once

#include "trainer/device/cuda/kernel/elements.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {

// The rows of a part, as part_begin() has them: `parts` is row_parts(rows).
struct RowRange {
  std::int64_t begin;
  std::int64_t end;
};
SIMT_FUNCTION RowRange rows_of_part(std::int64_t rows, std::int64_t part, std::int64_t parts) {
  return {rows * part / parts, rows * (part + 1) / parts};
}

// Reduces the vectors of a block's `groups` groups of `threads` threads, in their order, through
// shared memory: thread `of_group` of the first group gets the sum over the threads of that number.
template <int kMaxThreads>
SIMT_FUNCTION void group_reduce(float (&vec)[kVecSize], int group, int groups, int of_group,
                                int threads) {
  SIMT_SHARED(Vec4, of_thread, 2 * kMaxThreads);
  sync();
  SIMT_UNROLL
  for (int half = 0; half < 2; ++half) {
    Vec4 vec4;
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) vec4.at[i] = as_bits(vec[half * 4 + i]);
    of_thread[half * kMaxThreads + thread()] = vec4;
  }
  sync();
  if (group > 0) return;
  for (int other = 1; other < groups; ++other) {
    SIMT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const Vec4 vec4 = load_vec4(&of_thread[half * kMaxThreads + other * threads + of_group]);
      SIMT_UNROLL
      for (int i = 0; i < 4; ++i) vec[half * 4 + i] += as_float(vec4.at[i]);
    }
  }
}

// On the host: first [1, cols] f32 (+)= the sum over `parts` rows of cols elements of `partials`.
// `second`, if given, gets the sum of the `parts` rows behind them.
void sum_parts(const float* partials, std::int64_t parts, const Tensor& first, const Tensor& second,
               bool accumulate, const Launch& where);

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
