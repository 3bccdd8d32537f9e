// Norms, backward. With h = (sum - mean) rstd and g = dy gain: dsum = rstd (g - mean(g) - h mean(g
// h)) + dsum_in, without mean(g) for RMSNorm; dgain = sum of dy h, dbias = sum of dy over rows.
//
// A block has a part of the rows, so that each of its threads sums the dgain and dbias of its own
// columns in registers. Rounded once: dsum; dgain and dbias, to f32.
#include "trainer/device/cuda/kernel/norm.h"
#include "trainer/device/cuda/kernel/sums.h"
#include "trainer/device/parts.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {
namespace {

template <class R, class S>
struct Arguments {
  Rows<const S> dy;
  Rows<const R> dsum_in;
  Rows<const R> sum;
  const R* gain;
  const float* mean;  // null: RMSNorm
  const float* rstd;
  Rows<R> dsum;
  Rows<float> dgain;  // of each part
  Rows<float> dbias;  // null: not wanted
  std::int64_t rows;
  std::int64_t cols;
  float inverse_cols;
  int warps;
  int groups;
};

// A thread's part of a row as it is in memory; 0 beyond the end of the row or the part.
template <int kPacks, class R, class S>
struct Held {
  Raw<S> dy[kPacks];
  Raw<R> sum[kPacks];
};

template <int kPacks, class R, class S>
SIMT_FUNCTION Held<kPacks, R, S> fetch(const Arguments<R, S>& a, std::int64_t row, InRow at,
                                       int cols) {
  Held<kPacks, R, S> held = {};
  SIMT_UNROLL
  for (int p = 0; p < kPacks; ++p) {
    const int col = at.column(p);
    if (col >= cols) continue;
    held.dy[p] = load_raw(a.dy.row(row) + col);
    held.sum[p] = load_raw(a.sum.row(row) + col);
  }
  return held;
}

// g, h and what they add to the sums.
SIMT_FUNCTION void add_pack(const float (&dy)[kPack], const float (&sum)[kPack],
                            const float (&gain)[kPack], float mean, float rstd, Two& row_sums,
                            float (&dgain)[kPack], float (&dbias)[kPack]) {
  SIMT_UNROLL
  for (int i = 0; i < kPack; ++i) {
    const float h = (sum[i] - mean) * rstd;
    const float g = dy[i] * gain[i];
    row_sums.a += g;
    row_sums.b += g * h;
    dgain[i] += dy[i] * h;
    dbias[i] += dy[i];
  }
}

// dsum from dsum_in; means: of g and g h.
SIMT_FUNCTION void gradient(const float (&dy)[kPack], const float (&sum)[kPack],
                            const float (&gain)[kPack], float mean, float rstd, Two means,
                            float (&dsum)[kPack]) {
  SIMT_UNROLL
  for (int i = 0; i < kPack; ++i) {
    const float h = (sum[i] - mean) * rstd;
    dsum[i] += rstd * (dy[i] * gain[i] - means.a - h * means.b);
  }
}

template <class R, class S>
SIMT_FUNCTION Two means_of(const Arguments<R, S>& a, Two row_sums, int buffer, InRow at) {
  const Two sums = over_row(row_sums, buffer, at);
  return {a.mean != nullptr ? sums.a * a.inverse_cols : 0, sums.b * a.inverse_cols};
}

template <int kPacks, class R, class S>
SIMT_KERNEL(kMostNormThreads, (kPacks == 1 ? 2 : 1))
void norm_backward(Arguments<R, S> a) {
  // The row is in registers, and the next one on its way there; where they would not do, the row is
  // read from the cache when it is used again.
  constexpr bool kHeld = kPacks < 4 && sizeof(R) < sizeof(float);
  const InRow at = in_row(a.warps);
  const RowRange range = rows_of_part(a.rows, block(), blocks());
  const int rows = static_cast<int>(range.end - range.begin);
  const auto cols_of = [&](int of_part) { return of_part < rows ? static_cast<int>(a.cols) : 0; };
  float dgain[kPacks][kPack] = {};
  float dbias[kPacks][kPack] = {};
  Held<kPacks, R, S> now;
  if constexpr (kHeld) now = fetch<kPacks>(a, range.begin + at.group, at, cols_of(at.group));
  int buffer = 0;
  for (int first = 0; first < rows; first += a.groups) {
    const int cols = cols_of(first + at.group);
    const std::int64_t row = range.begin + first + at.group;
    Held<kPacks, R, S> next;
    Raw<R> dsum_in[kPacks] = {};
    if constexpr (kHeld) {
      SIMT_UNROLL
      for (int p = 0; p < kPacks; ++p) {
        if (a.dsum_in && at.column(p) < cols)
          dsum_in[p] = load_raw(a.dsum_in.row(row) + at.column(p));
      }
      next = fetch<kPacks>(a, row + a.groups, at, cols_of(first + a.groups + at.group));
    }
    const float mean = a.mean != nullptr && cols > 0 ? a.mean[row] : 0;
    const float rstd = cols > 0 ? a.rstd[row] : 0;
    float dy[kPack];
    float sum[kPack];
    float gain[kPack];
    const auto read = [&](int p, int col) {
      if constexpr (kHeld) {
        unpack(now.dy[p], dy);
        unpack(now.sum[p], sum);
      } else {
        load<true>(a.dy.row(row) + col, kPack, dy);
        load<true>(a.sum.row(row) + col, kPack, sum);
      }
      load<true>(a.gain + col, kPack, gain);
    };
    Two row_sums = {0, 0};
    SIMT_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      const int col = at.column(p);
      if (col >= cols) continue;
      read(p, col);
      add_pack(dy, sum, gain, mean, rstd, row_sums, dgain[p], dbias[p]);
    }
    const Two means = means_of(a, row_sums, buffer, at);
    buffer ^= 1;
    SIMT_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      const int col = at.column(p);
      if (col >= cols) continue;
      read(p, col);
      if constexpr (!kHeld) {
        if (a.dsum_in) dsum_in[p] = load_raw(a.dsum_in.row(row) + col);
      }
      float dsum[kPack];
      unpack(dsum_in[p], dsum);
      gradient(dy, sum, gain, mean, rstd, means, dsum);
      store<true>(a.dsum.row(row) + col, kPack, dsum);
    }
    if constexpr (kHeld) now = next;
  }
  SIMT_UNROLL
  for (int p = 0; p < kPacks; ++p) {
    if (a.groups > 1) {
      const int threads = a.warps * kWarp;
      add_groups<kMostNormThreads>(dgain[p], at.group, a.groups, at.thread, threads);
      add_groups<kMostNormThreads>(dbias[p], at.group, a.groups, at.thread, threads);
    }
    const int col = at.column(p);
    if (at.group > 0 || col >= a.cols) continue;
    store<true>(a.dgain.row(block()) + col, kPack, dgain[p]);
    if (a.dbias) store<true>(a.dbias.row(block()) + col, kPack, dbias[p]);
  }
}

// Sums of a row's columns are kept where the parts' sums go: one row at a time.
template <bool kPacked, class R, class S>
SIMT_KERNEL(kMostNormThreads, 1)
void norm_backward_of_any(Arguments<R, S> a) {
  const InRow at = in_row(a.warps);
  const RowRange range = rows_of_part(a.rows, block(), blocks());
  float dy[kPack];
  float sum[kPack];
  float gain[kPack];
  int buffer = 0;
  for (std::int64_t row = range.begin; row < range.end; ++row) {
    const float mean = a.mean != nullptr ? a.mean[row] : 0;
    const float rstd = a.rstd[row];
    const auto read = [&](std::int64_t col) {
      load<kPacked>(a.dy.row(row) + col, a.cols - col, dy);
      load<kPacked>(a.sum.row(row) + col, a.cols - col, sum);
      load<kPacked>(a.gain + col, a.cols - col, gain);
    };
    Two row_sums = {0, 0};
    for (std::int64_t p = 0; at.column(p) < a.cols; ++p) {
      const std::int64_t col = at.column(p);
      read(col);
      float dgain[kPack] = {};
      float dbias[kPack] = {};
      if (row > range.begin) {
        load<kPacked>(a.dgain.row(block()) + col, a.cols - col, dgain);
        if (a.dbias) load<kPacked>(a.dbias.row(block()) + col, a.cols - col, dbias);
      }
      add_pack(dy, sum, gain, mean, rstd, row_sums, dgain, dbias);
      store<kPacked>(a.dgain.row(block()) + col, a.cols - col, dgain);
      if (a.dbias) store<kPacked>(a.dbias.row(block()) + col, a.cols - col, dbias);
    }
    const Two means = means_of(a, row_sums, buffer, at);
    buffer ^= 1;
    for (std::int64_t p = 0; at.column(p) < a.cols; ++p) {
      const std::int64_t col = at.column(p);
      read(col);
      float dsum[kPack] = {};
      if (a.dsum_in) load<kPacked>(a.dsum_in.row(row) + col, a.cols - col, dsum);
      gradient(dy, sum, gain, mean, rstd, means, dsum);
      store<kPacked>(a.dsum.row(row) + col, a.cols - col, dsum);
    }
  }
}

template <class R, class S>
void launch_norm(const NormBackward& op, const Launch& where) {
  constexpr std::int64_t kOnePack = 4096;
  constexpr std::int64_t kTwoPacks = 8192;
  const std::int64_t rows = op.sum.rows;
  const std::int64_t cols = op.sum.cols;
  const std::int64_t parts = row_parts(rows);
  auto* const partials = static_cast<float*>(op.partials.data);
  const Tensor sums{partials, DType::f32, 2 * parts, cols, cols};
  const bool packed = is_packed({&op.dy, &op.dsum_in, &op.sum, &op.gain, &op.dsum, &sums});
  NormLayout layout = norm_layout(packed, cols, kOnePack, kTwoPacks, kMostNormThreads);
  if (layout.packs == 0) layout.groups = 1;
  const Arguments<R, S> arguments{
      rows_of<const S>(op.dy),
      rows_of<const R>(op.dsum_in),
      rows_of<const R>(op.sum),
      static_cast<const R*>(op.gain.data),
      op.kind == model::Norm::layernorm ? static_cast<const float*>(op.mean.data) : nullptr,
      static_cast<const float*>(op.rstd.data),
      rows_of<R>(op.dsum),
      {partials, cols},
      {op.dbias ? partials + parts * cols : nullptr, cols},
      rows,
      cols,
      1 / static_cast<float>(cols),
      layout.warps,
      layout.groups};
  const auto with = [&](auto kernel) {
    launch("norm_backward", kernel, Grid{static_cast<unsigned>(parts)}, layout.threads(), where,
           arguments);
  };
  switch (layout.packs) {
    case 1:
      return with(norm_backward<1, R, S>);
    case 2:
      return with(norm_backward<2, R, S>);
    case 4:
      return with(norm_backward<4, R, S>);
    default:
      return packed ? with(norm_backward_of_any<true, R, S>)
                    : with(norm_backward_of_any<false, R, S>);
  }
}

}  // namespace

void run(const NormBackward& op, const Launch& where) {
  with_norm_storage(op.sum.dtype, op.dy.dtype,
                    [&]<class R, class S>() { launch_norm<R, S>(op, where); });
  sum_parts(static_cast<const float*>(op.partials.data), row_parts(op.sum.rows), op.dgain, op.dbias,
            op.accumulate, where);
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
