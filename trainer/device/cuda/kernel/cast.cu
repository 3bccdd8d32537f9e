// SPDX-License-Identifier: Apache-2.0
// Casts, with or without accumulation: a grid-stride loop, one vector a thread and iteration.
#include "trainer/device/cuda/kernel/elements.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {
namespace {

constexpr int kThreads = 256;

template <bool kVectorized, bool kAccumulate, class S, class D>
SIMT_KERNEL(kThreads)
void cast(GridStrideLoop loop, Rows<const S> src, Rows<D> dst) {
  loop.each_vector<kThreads>([&](std::int64_t row, std::int64_t col, std::int64_t remaining) {
    float value[kVecSize];
    load<kVectorized>(src.row(row) + col, remaining, value);
    if constexpr (kAccumulate) {
      float old[kVecSize];
      load<kVectorized>(dst.row(row) + col, remaining, old);
      SIMT_UNROLL
      for (int i = 0; i < kVecSize; ++i) value[i] += old[i];
    }
    store<kVectorized>(dst.row(row) + col, remaining, value);
  });
}

template <bool kVectorized, bool kAccumulate, class S, class D>
void launch_cast(const Cast& op, const Launch& where) {
  const GridStrideLoop loop = grid_stride_loop({&op.src, &op.dst});
  launch("cast", cast<kVectorized, kAccumulate, S, D>, loop.grid(kThreads, where), kThreads, where,
         loop, rows_of<const S>(op.src), rows_of<D>(op.dst));
}

}  // namespace

void run(const Cast& op, const Launch& where) {
  with_vectorization(is_vectorizable({&op.src, &op.dst}), [&]<bool kVectorized>() {
    with_storage(op.src.dtype, [&]<class S>() {
      with_storage(op.dst.dtype, [&]<class D>() {
        if (op.accumulate) {
          launch_cast<kVectorized, true, S, D>(op, where);
        } else {
          launch_cast<kVectorized, false, S, D>(op, where);
        }
      });
    });
  });
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
