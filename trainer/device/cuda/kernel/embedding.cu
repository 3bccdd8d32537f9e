// SPDX-License-Identifier: Apache-2.0
// Embedding. A warp takes 256 columns, one vector a lane, so that rows of any width keep all lanes
// busy. It takes several rows at once: the token's id, its place in the table and the table's row
// are dependent loads, and several rows keep several of these chains in flight.
//
// Backward adds the tokens of one table row in one order, without atomics. y is rounded once;
// gradients are summed in f32.
#include "trainer/device/cuda/kernel/elements.h"
#include "trainer/device/cuda/kernel/sequences.h"
#include "trainer/device/cuda/kernel/sums.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {
namespace {

constexpr int kWarpCols = kWarpSize * kVecSize;
constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;

// Returns the column where the lane's vector begins. The block's y chooses the 256 columns.
SIMT_FUNCTION std::int64_t column_of_lane() {
  return block_y() * kWarpCols + lane() * kVecSize;
}

// Rows that a warp loads at once.
template <bool kVectorized, class S>
constexpr int kEmbedRows = kVectorized ? 8 / static_cast<int>(sizeof(S)) : 1;

template <bool kVectorized, class S>
SIMT_KERNEL(kThreads, 8)
void embed(std::int64_t rows, std::int64_t cols, std::int64_t vocab, std::int64_t seq,
           const std::int32_t* tokens, Rows<const S> table, Rows<const S> positions, Rows<S> y) {
  const std::int64_t col = column_of_lane();
  const std::int64_t remaining = cols - col;
  if (remaining <= 0) return;
  constexpr int kRows = kEmbedRows<kVectorized, S>;
  SequenceRows at((block() * kWarps + warp()) * kRows, blocks() * kWarps * kRows, seq);
  for (; at.row < rows; at.next()) {
    const auto count = static_cast<int>(rows - at.row < kRows ? rows - at.row : kRows);
    std::int32_t token[kRows];
    SIMT_UNROLL
    for (int k = 0; k < kRows; ++k) token[k] = k < count ? tokens[at.row + k] : 0;
    Prefetched<kVectorized, S> row[kRows];
    SIMT_UNROLL
    for (int k = 0; k < kRows; ++k) {
      const bool known = token[k] >= 0 && token[k] < vocab;
      if (known && k < count) row[k].fetch(table.row(token[k]) + col, remaining);
    }
    Prefetched<kVectorized, S> added[kRows];
    if (positions) {
      std::int64_t position = at.position;
      SIMT_UNROLL
      for (int k = 0; k < kRows; ++k) {
        if (k < count) added[k].fetch(positions.row(position) + col, remaining);
        position = position + 1 < seq ? position + 1 : 0;
      }
    }
    SIMT_UNROLL
    for (int k = 0; k < kRows; ++k) {
      if (k >= count) continue;
      const bool known = token[k] >= 0 && token[k] < vocab;
      float value[kVecSize];
      float position[kVecSize];
      row[k].get(value);
      added[k].get(position);
      SIMT_UNROLL
      for (int i = 0; i < kVecSize; ++i) value[i] = known ? value[i] + position[i] : NAN;
      store<kVectorized>(y.row(at.row + k) + col, remaining, value);
    }
  }
}

// sum += rows row_at(i) of dy for i below `count`: kInFlight rows from `first` on, then those from
// first + stride on, and so on. Row numbers are prefetched one iteration ahead.
template <bool kVectorized, class S>
inline constexpr int kInFlight = kVectorized ? 16 / static_cast<int>(sizeof(S)) : 1;
template <bool kVectorized, class S, class RowAt>
SIMT_FUNCTION void add_rows(int count, int first, int stride, RowAt row_at, Rows<const S> dy,
                            std::int64_t col, std::int64_t remaining, float (&sum)[kVecSize]) {
  constexpr int kUnroll = kInFlight<kVectorized, S>;
  std::int32_t row[kUnroll];
  const auto number = [&](int from) {
    SIMT_UNROLL
    for (int k = 0; k < kUnroll; ++k) row[k] = from + k < count ? row_at(from + k) : -1;
  };
  number(first);
  for (int at = first; at < count; at += stride) {
    Prefetched<kVectorized, S> value[kUnroll];
    SIMT_UNROLL
    for (int k = 0; k < kUnroll; ++k) {
      if (row[k] >= 0) value[k].fetch(dy.row(row[k]) + col, remaining);
    }
    number(at + stride);
    SIMT_UNROLL
    for (int k = 0; k < kUnroll; ++k) {
      float one[kVecSize];
      value[k].get(one);
      SIMT_UNROLL
      for (int i = 0; i < kVecSize; ++i) sum[i] += one[i];
    }
  }
}

constexpr int kSumThreads = 256;
constexpr int kSumWarps = kSumThreads / kWarpSize;
constexpr int kRows = 4;                     // table rows of a warp
constexpr int kSumRows = kSumWarps * kRows;  // table rows of a block
static_assert(kSumRows == kWarpSize);        // each lane of a warp looks one up

// One warp adds up to this many tokens of a table row, the whole block adds more: a comma may be
// one token in twenty.
constexpr int kMaxTokensPerWarp = 16;

// A block's table rows are blocks() apart, because frequent tokens are neighbours in a table. Most
// rows have no token at all: they cost only the stores of their zeros.
template <bool kVectorized, bool kAccumulate, class S>
SIMT_KERNEL(kSumThreads, 3)
void sum_tokens(std::int64_t rows, std::int64_t cols, const std::int32_t* order,
                const std::int32_t* starts, Rows<const S> dy, Rows<float> sums) {
  SIMT_SHARED(std::int32_t, begins, kSumRows);
  SIMT_SHARED(std::int32_t, counts, kSumRows);
  SIMT_SHARED(std::int32_t, firsts, kSumRows);
  const auto to = [](int i) { return block() + i * blocks(); };
  if (thread() < kSumRows) {
    std::int32_t begin = 0;
    std::int32_t count = 0;
    if (to(thread()) < rows) {
      begin = starts[to(thread())];
      count = starts[to(thread()) + 1] - begin;
    }
    begins[thread()] = begin;
    counts[thread()] = count;
    firsts[thread()] = count > 0 ? order[begin] : 0;
  }
  sync();
  const std::int64_t col = column_of_lane();
  const std::int64_t remaining = cols - col;

  // The rows that this warp sums alone. It fetches the first token of each of them before it adds
  // any.
  const auto is_mine = [&](int i) {
    return remaining > 0 && to(i) < rows && counts[i] <= kMaxTokensPerWarp &&
           (!kAccumulate || counts[i] > 0);
  };
  Prefetched<kVectorized, S> first[kRows];
  SIMT_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const int i = warp() + r * kSumWarps;
    if (is_mine(i) && counts[i] > 0) first[r].fetch(dy.row(firsts[i]) + col, remaining);
  }
  SIMT_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const int i = warp() + r * kSumWarps;
    if (!is_mine(i)) continue;
    float sum[kVecSize] = {};
    if constexpr (kAccumulate) load<kVectorized>(sums.row(to(i)) + col, remaining, sum);
    float one[kVecSize];
    first[r].get(one);
    SIMT_UNROLL
    for (int j = 0; j < kVecSize; ++j) sum[j] += one[j];
    const std::int32_t* const rest = order + begins[i] + 1;
    add_rows<kVectorized>(
        counts[i] - 1, 0, kInFlight<kVectorized, S>, [&](int k) { return rest[k]; }, dy, col,
        remaining, sum);
    store<kVectorized>(sums.row(to(i)) + col, remaining, sum);
  }

  for (int i = 0; i < kSumRows; ++i) {
    const int count = counts[i];
    if (count <= kMaxTokensPerWarp) continue;
    constexpr int kUnroll = kInFlight<kVectorized, S>;
    const std::int32_t* const all = order + begins[i];
    float sum[kVecSize] = {};
    if (remaining > 0) {
      add_rows<kVectorized>(
          count, warp() * kUnroll, kSumWarps * kUnroll, [&](int k) { return all[k]; }, dy, col,
          remaining, sum);
    }
    group_reduce<kSumThreads>(sum, warp(), kSumWarps, lane(), kWarpSize);
    if (warp() > 0 || remaining <= 0) continue;
    float* const out = sums.row(to(i)) + col;
    if constexpr (kAccumulate) {
      float before[kVecSize];
      load<kVectorized>(out, remaining, before);
      SIMT_UNROLL
      for (int j = 0; j < kVecSize; ++j) sum[j] += before[j];
    }
    store<kVectorized>(out, remaining, sum);
  }
}

// A row of the position table is the sum of one row of each sequence, and 0 beyond the sequence
// length.
template <bool kVectorized, bool kAccumulate, class S>
SIMT_KERNEL(kThreads, 8)
void sum_positions(std::int32_t rows, std::int64_t cols, std::int32_t dy_rows, std::int32_t seq,
                   Rows<const S> dy, Rows<float> sums) {
  const std::int64_t col = column_of_lane();
  const std::int64_t remaining = cols - col;
  const auto position = static_cast<std::int32_t>(block() * kWarps + warp());
  const int count = position < seq ? (dy_rows - position + seq - 1) / seq : 0;
  if (remaining <= 0 || position >= rows || (kAccumulate && count == 0)) return;
  float sum[kVecSize] = {};
  if constexpr (kAccumulate) load<kVectorized>(sums.row(position) + col, remaining, sum);
  add_rows<kVectorized>(
      count, 0, kInFlight<kVectorized, S>, [&](int k) { return position + k * seq; }, dy, col,
      remaining, sum);
  store<kVectorized>(sums.row(position) + col, remaining, sum);
}

// Calls f.operator()<kVectorized, kAccumulate, S>().
template <class F>
void with_sums(const Tensor& dy, const Tensor& sums, bool accumulate, F&& f) {
  with_vectorization(is_vectorizable({&dy, &sums}), [&]<bool kVectorized>() {
    with_storage(dy.dtype, [&]<class S>() {
      if (accumulate) {
        f.template operator()<kVectorized, true, S>();
      } else {
        f.template operator()<kVectorized, false, S>();
      }
    });
  });
}

Grid grid_of(std::int64_t blocks, std::int64_t cols) {
  return {static_cast<unsigned>(blocks), static_cast<unsigned>(ceil_div(cols, kWarpCols))};
}

}  // namespace

void run(const Embed& op, const Launch& where) {
  // The grid has as many blocks as the GPU holds at once, not one more.
  constexpr std::int64_t kOccupancy = 8;
  const std::int64_t most = std::max<std::int64_t>(
      where.multiprocessors * kOccupancy / ceil_div(op.y.cols, kWarpCols), 1);
  with_vectorization(is_vectorizable({&op.table, &op.positions, &op.y}), [&]<bool kVectorized>() {
    with_storage(op.y.dtype, [&]<class S>() {
      const std::int64_t all = ceil_div(op.y.rows, kWarps * kEmbedRows<kVectorized, S>);
      const Grid grid = grid_of(std::min(all, most), op.y.cols);
      launch("embed", embed<kVectorized, S>, grid, kThreads, where, op.y.rows, op.y.cols,
             op.table.rows, op.positions ? op.seq : op.y.rows,
             static_cast<const std::int32_t*>(op.tokens.data), rows_of<const S>(op.table),
             rows_of<const S>(op.positions), rows_of<S>(op.y));
    });
  });
}

void run(const EmbedBackward& op, const Launch& where) {
  if (const Tensor& to = op.dtable) {
    with_sums(op.dy, to, op.accumulate_table, [&]<bool kVectorized, bool kAccumulate, class S>() {
      launch("embed_backward", sum_tokens<kVectorized, kAccumulate, S>,
             grid_of(ceil_div(to.rows, kSumRows), to.cols), kSumThreads, where, to.rows, to.cols,
             static_cast<const std::int32_t*>(op.order.data),
             static_cast<const std::int32_t*>(op.starts.data), rows_of<const S>(op.dy),
             rows_of<float>(to));
    });
  }
  if (const Tensor& to = op.dpositions) {
    with_sums(op.dy, to, op.accumulate_positions,
              [&]<bool kVectorized, bool kAccumulate, class S>() {
                launch("embed_backward positions", sum_positions<kVectorized, kAccumulate, S>,
                       grid_of(ceil_div(to.rows, kWarps), to.cols), kThreads, where, to.rows,
                       to.cols, op.dy.rows, op.seq, rows_of<const S>(op.dy), rows_of<float>(to));
              });
  }
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
