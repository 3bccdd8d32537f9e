// Norms, forward, with the residual addition before them: a row is read once and held in registers
// until its statistics are known. Rounded once each: sum, of which the statistics are, and y.
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

// (x - mean) rstd gain + bias.
template <bool kPacked, class R, class S>
SIMT_FUNCTION void store_y(const Arguments<R, S>& a, std::int64_t row, std::int64_t col, float mean,
                           float rstd, float (&value)[kPack]) {
  const std::int64_t left = a.cols - col;
  float factor[kPack];
  load<kPacked>(a.gain + col, left, factor);
  SIMT_UNROLL
  for (int i = 0; i < kPack; ++i) value[i] = (value[i] - mean) * rstd * factor[i];
  if (a.bias != nullptr) {
    load<kPacked>(a.bias + col, left, factor);
    SIMT_UNROLL
    for (int i = 0; i < kPack; ++i) value[i] += factor[i];
  }
  store<kPacked>(a.y.row(row) + col, left, value);
}

template <class R, class S>
SIMT_FUNCTION float rstd_of(const Arguments<R, S>& a, std::int64_t row, InRow at, float mean,
                            float squares) {
  const float variance = over_row(squares, 1, at) * a.inverse_cols + a.eps;
  const float rstd = 1 / std::sqrt(variance);
  if (at.thread == 0 && row < a.rows) {
    if (a.mean != nullptr) a.mean[row] = mean;
    a.rstd[row] = rstd;
  }
  return rstd;
}

// Blocks that a multiprocessor has registers for.
template <int kPacks, class R>
constexpr int kBlocks = kPacks * sizeof(R) > 8 ? 1 : 2;

template <int kPacks, class R, class S>
SIMT_KERNEL(kMostNormThreads, (kBlocks<kPacks, R>))
void norm_forward(Arguments<R, S> a) {
  const InRow at = in_row(a.warps);
  const std::int64_t row = block() * a.groups + at.group;
  const int cols = static_cast<int>(columns(a, row));
  // The row as it is stored; 0 beyond its end.
  Raw<R> held[kPacks] = {};
  SIMT_UNROLL
  for (int p = 0; p < kPacks; ++p) {
    const int col = at.column(p);
    if (col < cols) held[p] = load_raw(a.x.row(row) + col);
  }
  if (a.add) {
    Raw<S> add[kPacks];
    SIMT_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      const int col = at.column(p);
      if (col < cols) add[p] = load_raw(a.add.row(row) + col);
    }
    SIMT_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      const int col = at.column(p);
      if (col >= cols) continue;
      float sum[kPack];
      float other[kPack];
      unpack(held[p], sum);
      unpack(add[p], other);
      SIMT_UNROLL
      for (int i = 0; i < kPack; ++i) sum[i] += other[i];
      held[p] = pack<R>(sum);
      store_raw(a.sum.row(row) + col, held[p]);
    }
  }
  float value[kPack];
  float mean = 0;
  if (a.mean != nullptr) {
    float total = 0;
    SIMT_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      unpack(held[p], value);
      SIMT_UNROLL
      for (int i = 0; i < kPack; ++i) total += value[i];
    }
    mean = over_row(total, 0, at) * a.inverse_cols;
  }
  // The variance from differences, not from the difference of large sums.
  float squares = 0;
  SIMT_UNROLL
  for (int p = 0; p < kPacks; ++p) {
    if (at.column(p) >= cols) continue;
    unpack(held[p], value);
    SIMT_UNROLL
    for (int i = 0; i < kPack; ++i) squares += (value[i] - mean) * (value[i] - mean);
  }
  const float rstd = rstd_of(a, row, at, mean, squares);
  SIMT_UNROLL
  for (int p = 0; p < kPacks; ++p) {
    const int col = at.column(p);
    if (col >= cols) continue;
    unpack(held[p], value);
    store_y<true>(a, row, col, mean, rstd, value);
  }
}

// Rows that are not held are read three times, from the cache where they fit into it.
template <bool kPacked, class R, class S>
SIMT_KERNEL(kMostNormThreads, 2)
void norm_forward_of_any(Arguments<R, S> a) {
  const InRow at = in_row(a.warps);
  const std::int64_t row = block() * a.groups + at.group;
  const std::int64_t cols = columns(a, row);
  float value[kPack];
  float total = 0;
  for (std::int64_t p = 0; at.column(p) < cols; ++p) {
    const std::int64_t col = at.column(p);
    load<kPacked>(a.x.row(row) + col, cols - col, value);
    if (a.add) {
      float add[kPack];
      load<kPacked>(a.add.row(row) + col, cols - col, add);
      SIMT_UNROLL
      for (int i = 0; i < kPack; ++i) value[i] += add[i];
      round_to<R>(value);
      store<kPacked>(a.sum.row(row) + col, cols - col, value);
    }
    SIMT_UNROLL
    for (int i = 0; i < kPack; ++i) total += value[i];
  }
  // A thread reads of sum what itself wrote.
  const R* const from = a.add ? a.sum.row(row) : a.x.row(row);
  const float mean = a.mean != nullptr ? over_row(total, 0, at) * a.inverse_cols : 0;
  float squares = 0;
  for (std::int64_t p = 0; at.column(p) < cols; ++p) {
    const std::int64_t col = at.column(p);
    load<kPacked>(from + col, cols - col, value);
    SIMT_UNROLL
    for (int i = 0; i < kPack; ++i) {
      const float centred = col + i < cols ? value[i] - mean : 0;
      squares += centred * centred;
    }
  }
  const float rstd = rstd_of(a, row, at, mean, squares);
  for (std::int64_t p = 0; at.column(p) < cols; ++p) {
    const std::int64_t col = at.column(p);
    load<kPacked>(from + col, cols - col, value);
    store_y<kPacked>(a, row, col, mean, rstd, value);
  }
}

template <class R, class S>
void launch_norm(const NormForward& op, const Launch& where) {
  constexpr std::int64_t kOnePack = 2048;
  constexpr std::int64_t kTwoPacks = 8192;
  constexpr int kThreads = 256;
  const bool packed = is_packed({&op.x, &op.add, &op.sum, &op.y, &op.gain, &op.bias});
  const NormLayout layout = norm_layout(packed, op.x.cols, kOnePack, kTwoPacks, kThreads);
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
  switch (layout.packs) {
    case 1:
      return with(norm_forward<1, R, S>);
    case 2:
      return with(norm_forward<2, R, S>);
    case 4:
      return with(norm_forward<4, R, S>);
    default:
      return packed ? with(norm_forward_of_any<true, R, S>)
                    : with(norm_forward_of_any<false, R, S>);
  }
}

}  // namespace

void run(const NormForward& op, const Launch& where) {
  with_norm_storage(op.x.dtype, op.y.dtype,
                    [&]<class R, class S>() { launch_norm<R, S>(op, where); });
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
