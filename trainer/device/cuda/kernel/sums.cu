// SPDX-License-Identifier: Apache-2.0
// Bias gradients, and the sum of partials that the norms' gradients need too: a reduction over rows
// split into parts, like split-k. A block of the first kernel takes 256 columns of a part of the
// rows; each of its 8 warps takes every eighth row.
#include "trainer/device/cuda/kernel/sums.h"
#include "trainer/device/parts.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;

template <bool kVectorized, class T>
SIMT_KERNEL(kThreads)
void sum_rows(Rows<const T> dy, std::int64_t rows, std::int64_t cols, float* partials) {
  constexpr int kUnroll = 4;  // rows of a warp in flight
  const std::int64_t part = block_y();
  const RowRange range = rows_of_part(rows, part, blocks_y());
  const std::int64_t col = (block() * kWarpSize + lane()) * kVecSize;
  const std::int64_t remaining = cols - col;
  float sums[kVecSize] = {};
  if (remaining > 0) {
    std::int64_t row = range.begin + warp();
    for (; row + (kUnroll - 1) * kWarps < range.end; row += kUnroll * kWarps) {
      float value[kUnroll][kVecSize];
      SIMT_UNROLL
      for (int i = 0; i < kUnroll; ++i)
        load<kVectorized>(dy.row(row + i * kWarps) + col, remaining, value[i]);
      SIMT_UNROLL
      for (int i = 0; i < kUnroll; ++i) {
        SIMT_UNROLL
        for (int j = 0; j < kVecSize; ++j) sums[j] += value[i][j];
      }
    }
    for (; row < range.end; row += kWarps) {
      float value[kVecSize];
      load<kVectorized>(dy.row(row) + col, remaining, value);
      SIMT_UNROLL
      for (int j = 0; j < kVecSize; ++j) sums[j] += value[j];
    }
  }
  group_reduce<kThreads>(sums, warp(), kWarps, lane(), kWarpSize);
  if (warp() == 0 && remaining > 0)
    store<kVectorized>(partials + part * cols + col, remaining, sums);
}

// Adds the parts. A block takes 32 columns; each of its 8 warps takes every eighth part. block_y()
// says which of the two sums.
SIMT_KERNEL(kThreads)
void sum_partials(const float* partials, std::int64_t parts, std::int64_t cols, float* first,
                  float* second, bool accumulate) {
  constexpr int kUnroll = 8;
  SIMT_SHARED(float, of_thread, kThreads);
  const std::int64_t col = block() * kWarpSize + lane();
  const float* of = partials + block_y() * parts * cols + col;
  float sum = 0;
  if (col < cols) {
    std::int64_t part = warp();
    for (; part + (kUnroll - 1) * kWarps < parts; part += kUnroll * kWarps) {
      float value[kUnroll];
      SIMT_UNROLL
      for (int i = 0; i < kUnroll; ++i) value[i] = of[(part + i * kWarps) * cols];
      SIMT_UNROLL
      for (int i = 0; i < kUnroll; ++i) sum += value[i];
    }
    for (; part < parts; part += kWarps) sum += of[part * cols];
  }
  of_thread[thread()] = sum;
  sync();
  if (warp() > 0 || col >= cols) return;
  for (int other = 1; other < kWarps; ++other) sum += of_thread[other * kWarpSize + lane()];
  float* const out = (block_y() == 0 ? first : second) + col;
  *out = accumulate ? *out + sum : sum;
}

}  // namespace

void sum_parts(const float* partials, std::int64_t parts, const Tensor& first, const Tensor& second,
               bool accumulate, const Launch& where) {
  const std::int64_t cols = first.cols;
  const Grid grid{static_cast<unsigned>(ceil_div(cols, kWarpSize)), second ? 2U : 1U};
  launch("sum_parts", sum_partials, grid, kThreads, where, partials, parts, cols,
         static_cast<float*>(first.data), static_cast<float*>(second.data), accumulate);
}

void run(const BiasGrad& op, const Launch& where) {
  const std::int64_t parts = row_parts(op.dy.rows);
  auto* const partials = static_cast<float*>(op.partials.data);
  const Tensor sums{partials, DType::f32, parts, op.dy.cols, op.dy.cols};
  const Grid grid{static_cast<unsigned>(ceil_div(op.dy.cols, kWarpSize * kVecSize)),
                  static_cast<unsigned>(parts)};
  with_vectorization(is_vectorizable({&op.dy, &sums}), [&]<bool kVectorized>() {
    with_storage(op.dy.dtype, [&]<class T>() {
      launch("bias_grad", sum_rows<kVectorized, T>, grid, kThreads, where, rows_of<const T>(op.dy),
             op.dy.rows, op.dy.cols, partials);
    });
  });
  sum_parts(partials, parts, op.dbias, {}, op.accumulate, where);
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
