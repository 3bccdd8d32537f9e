// SPDX-License-Identifier: Apache-2.0
// Norms, backward. With h = (sum - mean) rstd and g = dy gain: dsum = rstd (g - mean(g) - h mean(g
// h)) + dsum_in, without mean(g) for RMSNorm; dgain = sum of dy h, dbias = sum of dy over rows.
//
// A block takes a part of the rows, so that each thread sums dgain and dbias of its own columns in
// registers. Rows are prefetched to shared memory by cp.async in a multi-stage pipeline: a row is
// used twice with a block reduction between, during which nothing else would be in flight. Rounded
// once: dsum; dgain and dbias, to f32.
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
  Rows<float> dgain;  // one row for each part
  Rows<float> dbias;  // null: not wanted
  std::int64_t rows;
  std::int64_t cols;
  float inverse_cols;
  int warps;
  int groups;
  int stages;  // pipeline depth: rows of a group in shared memory or in flight; 0: none
};

// A thread's slice of a row in shared memory: for each vector the 16-byte words of dy, sum and
// dsum_in.
template <int kVectors, class R, class S>
struct Stage {
  static constexpr int kSum = Packed<S>::kVec4s;
  static constexpr int kDsumIn = kSum + Packed<R>::kVec4s;
  static constexpr int kVec4s = kDsumIn + Packed<R>::kVec4s;                         // of a vector
  static constexpr int kBytes = kVectors * kVec4s * static_cast<int>(sizeof(Vec4));  // of a thread

  Vec4* words;
  int stride;  // between a thread's words: neighbouring threads have neighbouring words

  SIMT_FUNCTION Vec4* at(int vector, int word) const {
    return words + (vector * kVec4s + word) * stride;
  }
  SIMT_FUNCTION void fetch(const Arguments<R, S>& a, std::int64_t row, RowThread in,
                           int cols) const {
    SIMT_UNROLL
    for (int p = 0; p < kVectors; ++p) {
      const int col = in.column(p);
      if (col >= cols) continue;
      cp_async_packed(at(p, 0), stride, a.dy.row(row) + col);
      cp_async_packed(at(p, kSum), stride, a.sum.row(row) + col);
      if (a.dsum_in) cp_async_packed(at(p, kDsumIn), stride, a.dsum_in.row(row) + col);
    }
    cp_async_commit();
  }
};
constexpr int kMaxStages = 4;

// Waits for all groups of copies but the last stages - 1. cp.async.wait_group takes a constant.
SIMT_FUNCTION void wait_for_stage(int stages) {
  if (stages == 1) cp_async_wait<0>();
  if (stages == 2) cp_async_wait<1>();
  if (stages == 3) cp_async_wait<2>();
  if (stages == 4) cp_async_wait<3>();
}

// Statistics of a row; 0 beyond the end of the part.
struct Statistics {
  float mean;
  float rstd;
};
template <class R, class S>
SIMT_FUNCTION Statistics statistics_of(const Arguments<R, S>& a, std::int64_t row, bool there) {
  return {there && a.mean != nullptr ? a.mean[row] : 0, there ? a.rstd[row] : 0};
}

// Adds a vector of g and g h to the row's sums, and of dy h and dy to the columns' sums.
SIMT_FUNCTION void add_vector(const float (&dy)[kVecSize], const float (&sum)[kVecSize],
                              const float (&gain)[kVecSize], float mean, float rstd,
                              Float2& row_sums, float (&dgain)[kVecSize],
                              float (&dbias)[kVecSize]) {
  SIMT_UNROLL
  for (int i = 0; i < kVecSize; ++i) {
    const float h = (sum[i] - mean) * rstd;
    const float g = dy[i] * gain[i];
    row_sums.a += g;
    row_sums.b += g * h;
    dgain[i] += dy[i] * h;
    dbias[i] += dy[i];
  }
}

// Adds the gradient to dsum, which holds dsum_in. means: of g and of g h.
SIMT_FUNCTION void gradient(const float (&dy)[kVecSize], const float (&sum)[kVecSize],
                            const float (&gain)[kVecSize], float mean, float rstd, Float2 means,
                            float (&dsum)[kVecSize]) {
  SIMT_UNROLL
  for (int i = 0; i < kVecSize; ++i) {
    const float h = (sum[i] - mean) * rstd;
    dsum[i] += rstd * (dy[i] * gain[i] - means.a - h * means.b);
  }
}

template <class R, class S>
SIMT_FUNCTION Float2 means_of(const Arguments<R, S>& a, Float2 row_sums, int buffer, RowThread at) {
  const Float2 sums = row_reduce(row_sums, buffer, at);
  return {a.mean != nullptr ? sums.a * a.inverse_cols : 0, sums.b * a.inverse_cols};
}

// Threads of a block: few enough that a multiprocessor has registers for two blocks where possible.
constexpr int kThreads = 384;
template <int kVectors>
constexpr int kMaxThreads = kVectors <= 2 ? kThreads : kMaxNormThreads;
template <int kVectors, class S>
constexpr int kOccupancy = kVectors * sizeof(S) <= 4 ? 2 : 1;

template <int kVectors, class R, class S>
SIMT_KERNEL(kMaxThreads<kVectors>, (kOccupancy<kVectors, S>))
void norm_backward(Arguments<R, S> a) {
  using OfThread = Stage<kVectors, R, S>;
  const RowThread at = row_thread(a.warps);
  const RowRange range = rows_of_part(a.rows, block(), blocks());
  const int rows = static_cast<int>(range.end - range.begin);
  const auto cols_of = [&](int of_part) { return of_part < rows ? static_cast<int>(a.cols) : 0; };
  const int threads = a.groups * a.warps * kWarpSize;
  const auto stage_at = [&](int stage) {
    return OfThread{dynamic_shared() + stage * threads * kVectors * OfThread::kVec4s + thread(),
                    threads};
  };
  // A thread reads back only the shared memory that it copied itself, so it needs no sync().
  const auto fetch = [&](int stage, int of_part) {
    stage_at(stage).fetch(a, range.begin + of_part, at, cols_of(of_part));
  };
  for (int stage = 0; stage < a.stages; ++stage) fetch(stage, stage * a.groups + at.group);
  float dgain[kVectors][kVecSize] = {};
  float dbias[kVectors][kVecSize] = {};
  int buffer = 0;
  int stage = 0;
  Statistics next = statistics_of(a, range.begin + at.group, at.group < rows);
  for (int first = 0; first < rows; first += a.groups) {
    const int of_part = first + at.group;
    const int cols = cols_of(of_part);
    const std::int64_t row = range.begin + of_part;
    const auto [mean, rstd] = next;
    next = statistics_of(a, row + a.groups, of_part + a.groups < rows);
    wait_for_stage(a.stages);
    const OfThread here = stage_at(stage);
    float dy[kVecSize];
    float sum[kVecSize];
    float gain[kVecSize];
    const auto read = [&](int p, int col) {
      if (a.stages > 0) {
        unpack(load_shared<S>(here.at(p, 0), threads), dy);
        unpack(load_shared<R>(here.at(p, OfThread::kSum), threads), sum);
      } else {
        load<true>(a.dy.row(row) + col, kVecSize, dy);
        load<true>(a.sum.row(row) + col, kVecSize, sum);
      }
      load<true>(a.gain + col, kVecSize, gain);
    };
    Float2 row_sums = {0, 0};
    SIMT_UNROLL
    for (int p = 0; p < kVectors; ++p) {
      const int col = at.column(p);
      if (col >= cols) continue;
      read(p, col);
      add_vector(dy, sum, gain, mean, rstd, row_sums, dgain[p], dbias[p]);
    }
    const Float2 means = means_of(a, row_sums, buffer, at);
    buffer ^= 1;
    SIMT_UNROLL
    for (int p = 0; p < kVectors; ++p) {
      const int col = at.column(p);
      if (col >= cols) continue;
      read(p, col);
      Packed<R> dsum_in = {};
      if (a.dsum_in) {
        dsum_in = a.stages > 0 ? load_shared<R>(here.at(p, OfThread::kDsumIn), threads)
                               : load_packed(a.dsum_in.row(row) + col);
      }
      float dsum[kVecSize];
      unpack(dsum_in, dsum);
      gradient(dy, sum, gain, mean, rstd, means, dsum);
      store<true>(a.dsum.row(row) + col, kVecSize, dsum);
    }
    if (a.stages == 0) continue;
    fetch(stage, of_part + a.stages * a.groups);
    stage = stage + 1 < a.stages ? stage + 1 : 0;
  }
  SIMT_UNROLL
  for (int p = 0; p < kVectors; ++p) {
    if (a.groups > 1) {
      const int of_row = a.warps * kWarpSize;
      group_reduce<kMaxThreads<kVectors>>(dgain[p], at.group, a.groups, at.thread, of_row);
      group_reduce<kMaxThreads<kVectors>>(dbias[p], at.group, a.groups, at.thread, of_row);
    }
    const int col = at.column(p);
    if (at.group > 0 || col >= a.cols) continue;
    store<true>(a.dgain.row(block()) + col, kVecSize, dgain[p]);
    if (a.dbias) store<true>(a.dbias.row(block()) + col, kVecSize, dbias[p]);
  }
}

// Rows of any width: the columns' sums live in the partials in memory, one row at a time.
template <bool kVectorized, class R, class S>
SIMT_KERNEL(kMaxNormThreads, 1)
void norm_backward_generic(Arguments<R, S> a) {
  const RowThread at = row_thread(a.warps);
  const RowRange range = rows_of_part(a.rows, block(), blocks());
  float dy[kVecSize];
  float sum[kVecSize];
  float gain[kVecSize];
  int buffer = 0;
  for (std::int64_t row = range.begin; row < range.end; ++row) {
    const float mean = a.mean != nullptr ? a.mean[row] : 0;
    const float rstd = a.rstd[row];
    const auto read = [&](std::int64_t col) {
      load<kVectorized>(a.dy.row(row) + col, a.cols - col, dy);
      load<kVectorized>(a.sum.row(row) + col, a.cols - col, sum);
      load<kVectorized>(a.gain + col, a.cols - col, gain);
    };
    Float2 row_sums = {0, 0};
    for (std::int64_t p = 0; at.column(p) < a.cols; ++p) {
      const std::int64_t col = at.column(p);
      read(col);
      float dgain[kVecSize] = {};
      float dbias[kVecSize] = {};
      if (row > range.begin) {
        load<kVectorized>(a.dgain.row(block()) + col, a.cols - col, dgain);
        if (a.dbias) load<kVectorized>(a.dbias.row(block()) + col, a.cols - col, dbias);
      }
      add_vector(dy, sum, gain, mean, rstd, row_sums, dgain, dbias);
      store<kVectorized>(a.dgain.row(block()) + col, a.cols - col, dgain);
      if (a.dbias) store<kVectorized>(a.dbias.row(block()) + col, a.cols - col, dbias);
    }
    const Float2 means = means_of(a, row_sums, buffer, at);
    buffer ^= 1;
    for (std::int64_t p = 0; at.column(p) < a.cols; ++p) {
      const std::int64_t col = at.column(p);
      read(col);
      float dsum[kVecSize] = {};
      if (a.dsum_in) load<kVectorized>(a.dsum_in.row(row) + col, a.cols - col, dsum);
      gradient(dy, sum, gain, mean, rstd, means, dsum);
      store<kVectorized>(a.dsum.row(row) + col, a.cols - col, dsum);
    }
  }
}

// Returns how many rows of a group to prefetch, at `bytes` of a block each: as many as let a
// multiprocessor hold two blocks, or, if that is at most one row, as fit one block.
template <int kVectors>
int stages_of(int bytes, int shared_bytes) {
  constexpr int kOfBlock = 1024;  // reserved for each block by CUDA
  // Static shared memory of group_reduce() and row_reduce().
  constexpr int kOwnBytes = 2 * kMaxThreads<kVectors> * static_cast<int>(sizeof(Vec4)) + 1024;
  const int of_two = ((shared_bytes - kOfBlock) / 2 - kOwnBytes) / bytes;
  return std::clamp(of_two > 1 ? of_two : (shared_bytes - kOwnBytes) / bytes, 0, kMaxStages);
}

template <class R, class S>
void launch_norm(const NormBackward& op, const Launch& where) {
  constexpr std::int64_t kOneVector = kThreads * kVecSize;
  constexpr std::int64_t kTwoVectors = 2 * kOneVector;
  const std::int64_t rows = op.sum.rows;
  const std::int64_t cols = op.sum.cols;
  const std::int64_t parts = row_parts(rows);
  auto* const partials = static_cast<float*>(op.partials.data);
  const Tensor sums{partials, DType::f32, 2 * parts, cols, cols};
  const bool vectorizable =
      is_vectorizable({&op.dy, &op.dsum_in, &op.sum, &op.gain, &op.dsum, &sums});
  NormLayout layout = norm_layout(vectorizable, cols, kOneVector, kTwoVectors, kThreads);
  if (layout.vectors == 0) layout.groups = 1;
  Arguments<R, S> arguments{
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
      layout.groups,
      0};
  Grid grid{static_cast<unsigned>(parts)};
  const auto with = [&](auto kernel) {
    launch("norm_backward", kernel, grid, layout.threads(), where, arguments);
  };
  const auto with_vectors = [&]<int kVectors>() {
    const int bytes = layout.threads() * Stage<kVectors, R, S>::kBytes;
    arguments.stages = stages_of<kVectors>(bytes, where.max_shared_bytes);
    grid.dynamic_shared_bytes = static_cast<unsigned>(arguments.stages * bytes);
    with(norm_backward<kVectors, R, S>);
  };
  switch (layout.vectors) {
    case 1:
      return with_vectors.template operator()<1>();
    case 2:
      return with_vectors.template operator()<2>();
    case 4:
      return with_vectors.template operator()<4>();
    default:
      return vectorizable ? with(norm_backward_generic<true, R, S>)
                          : with(norm_backward_generic<false, R, S>);
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
