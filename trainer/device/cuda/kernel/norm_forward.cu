// SPDX-License-Identifier: Apache-2.0
// Norms, forward, with the residual addition before them. A row is read once and stays in registers
// until its statistics are known. Rounded once each: sum, from which the statistics are computed,
// and y.
#include "trainer/device/cuda/kernel/norm.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {
namespace {

template <class R, class S>
struct Arguments {
  Rows<const R> x;
  Rows<const S> add;
  Rows<R> sum;
  Rows<S> y;
  const R* gain;
  const R* bias;
  float* mean;  // null: RMSNorm
  float* rstd;
  std::int64_t rows;
  std::int64_t cols;
  float inverse_cols;
  float eps;
  int warps;
  int groups;
};

// Columns of a group's row: none beyond the last row.
template <class R, class S>
SIMT_FUNCTION std::int64_t columns(const Arguments<R, S>& a, std::int64_t row) {
  return row < a.rows ? a.cols : 0;
}

// y = (x - mean) rstd gain + bias.
template <bool kVectorized, class R, class S>
SIMT_FUNCTION void store_y(const Arguments<R, S>& a, std::int64_t row, std::int64_t col, float mean,
                           float rstd, float (&value)[kVecSize]) {
  const std::int64_t remaining = a.cols - col;
  float factor[kVecSize];
  load<kVectorized>(a.gain + col, remaining, factor);
  SIMT_UNROLL
  for (int i = 0; i < kVecSize; ++i) value[i] = (value[i] - mean) * rstd * factor[i];
  if (a.bias != nullptr) {
    load<kVectorized>(a.bias + col, remaining, factor);
    SIMT_UNROLL
    for (int i = 0; i < kVecSize; ++i) value[i] += factor[i];
  }
  store<kVectorized>(a.y.row(row) + col, remaining, value);
}

template <class R, class S>
SIMT_FUNCTION float rstd_of(const Arguments<R, S>& a, std::int64_t row, RowThread at, float mean,
                            float squares) {
  const float variance = row_reduce(squares, 1, at) * a.inverse_cols + a.eps;
  const float rstd = 1 / std::sqrt(variance);
  if (at.thread == 0 && row < a.rows) {
    if (a.mean != nullptr) a.mean[row] = mean;
    a.rstd[row] = rstd;
  }
  return rstd;
}

// Occupancy: blocks that a multiprocessor has registers for.
template <int kVectors, class R>
constexpr int kOccupancy = kVectors * sizeof(R) > 8 ? 1 : 2;

template <int kVectors, class R, class S>
SIMT_KERNEL(kMaxNormThreads, (kOccupancy<kVectors, R>))
void norm_forward(Arguments<R, S> a) {
  const RowThread at = row_thread(a.warps);
  const std::int64_t row = block() * a.groups + at.group;
  const int cols = static_cast<int>(columns(a, row));
  // The row's vectors as they are stored; 0 beyond its end.
  Packed<R> resident[kVectors] = {};
  SIMT_UNROLL
  for (int p = 0; p < kVectors; ++p) {
    const int col = at.column(p);
    if (col < cols) resident[p] = load_packed(a.x.row(row) + col);
  }
  if (a.add) {
    Packed<S> add[kVectors];
    SIMT_UNROLL
    for (int p = 0; p < kVectors; ++p) {
      const int col = at.column(p);
      if (col < cols) add[p] = load_packed(a.add.row(row) + col);
    }
    SIMT_UNROLL
    for (int p = 0; p < kVectors; ++p) {
      const int col = at.column(p);
      if (col >= cols) continue;
      float sum[kVecSize];
      float other[kVecSize];
      unpack(resident[p], sum);
      unpack(add[p], other);
      SIMT_UNROLL
      for (int i = 0; i < kVecSize; ++i) sum[i] += other[i];
      resident[p] = pack<R>(sum);
      store_packed(a.sum.row(row) + col, resident[p]);
    }
  }
  float value[kVecSize];
  float mean = 0;
  if (a.mean != nullptr) {
    float total = 0;
    SIMT_UNROLL
    for (int p = 0; p < kVectors; ++p) {
      unpack(resident[p], value);
      SIMT_UNROLL
      for (int i = 0; i < kVecSize; ++i) total += value[i];
    }
    mean = row_reduce(total, 0, at) * a.inverse_cols;
  }
  // The variance is the mean of squared differences: a difference of large sums would cancel.
  float squares = 0;
  SIMT_UNROLL
  for (int p = 0; p < kVectors; ++p) {
    if (at.column(p) >= cols) continue;
    unpack(resident[p], value);
    SIMT_UNROLL
    for (int i = 0; i < kVecSize; ++i) squares += (value[i] - mean) * (value[i] - mean);
  }
  const float rstd = rstd_of(a, row, at, mean, squares);
  SIMT_UNROLL
  for (int p = 0; p < kVectors; ++p) {
    const int col = at.column(p);
    if (col >= cols) continue;
    unpack(resident[p], value);
    store_y<true>(a, row, col, mean, rstd, value);
  }
}

// Rows of any width: they do not fit into registers, so they are read three times, from the cache
// if it holds them.
template <bool kVectorized, class R, class S>
SIMT_KERNEL(kMaxNormThreads, 2)
void norm_forward_generic(Arguments<R, S> a) {
  const RowThread at = row_thread(a.warps);
  const std::int64_t row = block() * a.groups + at.group;
  const std::int64_t cols = columns(a, row);
  float value[kVecSize];
  float total = 0;
  for (std::int64_t p = 0; at.column(p) < cols; ++p) {
    const std::int64_t col = at.column(p);
    load<kVectorized>(a.x.row(row) + col, cols - col, value);
    if (a.add) {
      float add[kVecSize];
      load<kVectorized>(a.add.row(row) + col, cols - col, add);
      SIMT_UNROLL
      for (int i = 0; i < kVecSize; ++i) value[i] += add[i];
      round_to<R>(value);
      store<kVectorized>(a.sum.row(row) + col, cols - col, value);
    }
    SIMT_UNROLL
    for (int i = 0; i < kVecSize; ++i) total += value[i];
  }
  // A thread reads back only the part of sum that it wrote itself.
  const R* const from = a.add ? a.sum.row(row) : a.x.row(row);
  const float mean = a.mean != nullptr ? row_reduce(total, 0, at) * a.inverse_cols : 0;
  float squares = 0;
  for (std::int64_t p = 0; at.column(p) < cols; ++p) {
    const std::int64_t col = at.column(p);
    load<kVectorized>(from + col, cols - col, value);
    SIMT_UNROLL
    for (int i = 0; i < kVecSize; ++i) {
      const float centred = col + i < cols ? value[i] - mean : 0;
      squares += centred * centred;
    }
  }
  const float rstd = rstd_of(a, row, at, mean, squares);
  for (std::int64_t p = 0; at.column(p) < cols; ++p) {
    const std::int64_t col = at.column(p);
    load<kVectorized>(from + col, cols - col, value);
    store_y<kVectorized>(a, row, col, mean, rstd, value);
  }
}

template <class R, class S>
void launch_norm(const NormForward& op, const Launch& where) {
  constexpr std::int64_t kOneVector = 2048;
  constexpr std::int64_t kTwoVectors = 8192;
  constexpr int kThreads = 256;
  const bool vectorizable = is_vectorizable({&op.x, &op.add, &op.sum, &op.y, &op.gain, &op.bias});
  const NormLayout layout = norm_layout(vectorizable, op.x.cols, kOneVector, kTwoVectors, kThreads);
  const Arguments<R, S> arguments{
      rows_of<const R>(op.x),
      rows_of<const S>(op.add),
      rows_of<R>(op.sum),
      rows_of<S>(op.y),
      static_cast<const R*>(op.gain.data),
      static_cast<const R*>(op.bias.data),
      op.kind == model::Norm::layernorm ? static_cast<float*>(op.mean.data) : nullptr,
      static_cast<float*>(op.rstd.data),
      op.x.rows,
      op.x.cols,
      1 / static_cast<float>(op.x.cols),
      op.eps,
      layout.warps,
      layout.groups};
  const Grid grid{static_cast<unsigned>(ceil_div(op.x.rows, layout.groups))};
  const auto with = [&](auto kernel) {
    launch("norm_forward", kernel, grid, layout.threads(), where, arguments);
  };
  switch (layout.vectors) {
    case 1:
      return with(norm_forward<1, R, S>);
    case 2:
      return with(norm_forward<2, R, S>);
    case 4:
      return with(norm_forward<4, R, S>);
    default:
      return vectorizable ? with(norm_forward_generic<true, R, S>)
                          : with(norm_forward_generic<false, R, S>);
  }
}

}  // namespace

void run(const NormForward& op, const Launch& where) {
  with_norm_storage(op.x.dtype, op.y.dtype,
                    [&]<class R, class S>() { launch_norm<R, S>(op, where); });
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
