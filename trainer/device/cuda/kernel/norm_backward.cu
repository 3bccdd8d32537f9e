// Norms, backward. With h = (sum - mean) rstd and g = dy gain: dsum = rstd (g - mean(g) - h mean(g
// h)) + dsum_in, without mean(g) for RMSNorm; dgain = sum of dy h, dbias = sum of dy over rows.
//
// A block has a part of the rows, so that each of its threads sums the dgain and dbias of its own
// columns in registers. Rows come ahead, by copies to shared memory: a row is used twice, with a
// sum over the block between, in whose time nothing else would be on its way. Rounded once: dsum;
// dgain and dbias, to f32.
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
  int stages;  // rows of a group that are in shared memory or on their way there; 0: none
};

// A thread's part of a row in shared memory: of each pack the words of dy, of sum and of dsum_in.
template <int kPacks, class R, class S>
struct Stage {
  static constexpr int kSum = Raw<S>::kWords;
  static constexpr int kDsumIn = kSum + Raw<R>::kWords;
  static constexpr int kWords = kDsumIn + Raw<R>::kWords;                           // of a pack
  static constexpr int kBytes = kPacks * kWords * static_cast<int>(sizeof(Words));  // of a thread

  Words* words;
  int step;  // from word to word: so many threads take neighbouring ones

  SIMT_FUNCTION Words* at(int pack, int word) const {
    return words + (pack * kWords + word) * step;
  }
  SIMT_FUNCTION void fetch(const Arguments<R, S>& a, std::int64_t row, InRow in, int cols) const {
    SIMT_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      const int col = in.column(p);
      if (col >= cols) continue;
      copy_raw_ahead(at(p, 0), step, a.dy.row(row) + col);
      copy_raw_ahead(at(p, kSum), step, a.sum.row(row) + col);
      if (a.dsum_in) copy_raw_ahead(at(p, kDsumIn), step, a.dsum_in.row(row) + col);
    }
    end_copies();
  }
};
constexpr int kMostStages = 4;

// Waits for all groups of copies but the last stages - 1.
SIMT_FUNCTION void wait_for_stage(int stages) {
  if (stages == 1) wait_copies<0>();
  if (stages == 2) wait_copies<1>();
  if (stages == 3) wait_copies<2>();
  if (stages == 4) wait_copies<3>();
}

// Of a row; 0 beyond the end of the part.
struct Statistics {
  float mean;
  float rstd;
};
template <class R, class S>
SIMT_FUNCTION Statistics statistics_of(const Arguments<R, S>& a, std::int64_t row, bool there) {
  return {there && a.mean != nullptr ? a.mean[row] : 0, there ? a.rstd[row] : 0};
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

// Threads of a block: so few that a multiprocessor has registers for two blocks, where that can be.
constexpr int kThreads = 384;
template <int kPacks>
constexpr int kMostThreads = kPacks <= 2 ? kThreads : kMostNormThreads;
template <int kPacks, class S>
constexpr int kBlocks = kPacks * sizeof(S) <= 4 ? 2 : 1;

template <int kPacks, class R, class S>
SIMT_KERNEL(kMostThreads<kPacks>, (kBlocks<kPacks, S>))
void norm_backward(Arguments<R, S> a) {
  using OfThread = Stage<kPacks, R, S>;
  const InRow at = in_row(a.warps);
  const RowRange range = rows_of_part(a.rows, block(), blocks());
  const int rows = static_cast<int>(range.end - range.begin);
  const auto cols_of = [&](int of_part) { return of_part < rows ? static_cast<int>(a.cols) : 0; };
  const int threads = a.groups * a.warps * kWarp;
  const auto stage_at = [&](int stage) {
    return OfThread{launch_shared() + stage * threads * kPacks * OfThread::kWords + thread(),
                    threads};
  };
  // A thread reads of shared memory what itself has copied.
  const auto fetch = [&](int stage, int of_part) {
    stage_at(stage).fetch(a, range.begin + of_part, at, cols_of(of_part));
  };
  for (int stage = 0; stage < a.stages; ++stage) fetch(stage, stage * a.groups + at.group);
  float dgain[kPacks][kPack] = {};
  float dbias[kPacks][kPack] = {};
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
    float dy[kPack];
    float sum[kPack];
    float gain[kPack];
    const auto read = [&](int p, int col) {
      if (a.stages > 0) {
        unpack(load_shared<S>(here.at(p, 0), threads), dy);
        unpack(load_shared<R>(here.at(p, OfThread::kSum), threads), sum);
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
      Raw<R> dsum_in = {};
      if (a.dsum_in) {
        dsum_in = a.stages > 0 ? load_shared<R>(here.at(p, OfThread::kDsumIn), threads)
                               : load_raw(a.dsum_in.row(row) + col);
      }
      float dsum[kPack];
      unpack(dsum_in, dsum);
      gradient(dy, sum, gain, mean, rstd, means, dsum);
      store<true>(a.dsum.row(row) + col, kPack, dsum);
    }
    if (a.stages == 0) continue;
    fetch(stage, of_part + a.stages * a.groups);
    stage = stage + 1 < a.stages ? stage + 1 : 0;
  }
  SIMT_UNROLL
  for (int p = 0; p < kPacks; ++p) {
    if (a.groups > 1) {
      const int of_row = a.warps * kWarp;
      add_groups<kMostThreads<kPacks>>(dgain[p], at.group, a.groups, at.thread, of_row);
      add_groups<kMostThreads<kPacks>>(dbias[p], at.group, a.groups, at.thread, of_row);
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

// How many rows of a group come ahead, each `bytes` of a block: as many as let a multiprocessor
// have two blocks; where that is no more than one, those of one block.
template <int kPacks>
int stages_of(int bytes, int shared_bytes) {
  constexpr int kOfBlock = 1024;  // what a GPU takes of each for itself
  // What add_groups() and over_row() declare.
  constexpr int kOwnBytes = 2 * kMostThreads<kPacks> * static_cast<int>(sizeof(Words)) + 1024;
  const int of_two = ((shared_bytes - kOfBlock) / 2 - kOwnBytes) / bytes;
  return std::clamp(of_two > 1 ? of_two : (shared_bytes - kOwnBytes) / bytes, 0, kMostStages);
}

template <class R, class S>
void launch_norm(const NormBackward& op, const Launch& where) {
  constexpr std::int64_t kOnePack = kThreads * kPack;
  constexpr std::int64_t kTwoPacks = 2 * kOnePack;
  const std::int64_t rows = op.sum.rows;
  const std::int64_t cols = op.sum.cols;
  const std::int64_t parts = row_parts(rows);
  auto* const partials = static_cast<float*>(op.partials.data);
  const Tensor sums{partials, DType::f32, 2 * parts, cols, cols};
  const bool packed = is_packed({&op.dy, &op.dsum_in, &op.sum, &op.gain, &op.dsum, &sums});
  NormLayout layout = norm_layout(packed, cols, kOnePack, kTwoPacks, kThreads);
  if (layout.packs == 0) layout.groups = 1;
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
  const auto with_packs = [&]<int kPacks>() {
    const int bytes = layout.threads() * Stage<kPacks, R, S>::kBytes;
    arguments.stages = stages_of<kPacks>(bytes, where.shared_bytes);
    grid.shared_bytes = static_cast<unsigned>(arguments.stages * bytes);
    with(norm_backward<kPacks, R, S>);
  };
  switch (layout.packs) {
    case 1:
      return with_packs.template operator()<1>();
    case 2:
      return with_packs.template operator()<2>();
    case 4:
      return with_packs.template operator()<4>();
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
