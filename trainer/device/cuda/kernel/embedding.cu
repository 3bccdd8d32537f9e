// Embedding. A warp has 256 columns, a pack of them a lane, so that a row of any width keeps its
// lanes busy, and several rows at once, so that what waits for a token's number, its place in the
// table and the row there waits for several at a time.
//
// Backward: the tokens of one row of the table are added in one order, no atomics. Rounded once: y;
// gradients are sums in f32.
#include "trainer/device/cuda/kernel/elements.h"
#include "trainer/device/cuda/kernel/sequences.h"
#include "trainer/device/cuda/kernel/sums.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {
namespace {

constexpr int kWarpCols = kWarp * kPack;
constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;

// Where a lane's pack begins: the block's y says which 256 columns.
SIMT_FUNCTION std::int64_t column_of_lane() {
  return block_y() * kWarpCols + lane() * kPack;
}

// Rows of a warp at once.
template <bool kPacked, class S>
constexpr int kEmbedRows = kPacked ? 8 / static_cast<int>(sizeof(S)) : 1;

template <bool kPacked, class S>
SIMT_KERNEL(kThreads, 8)
void embed(std::int64_t rows, std::int64_t cols, std::int64_t vocab, std::int64_t seq,
           const std::int32_t* tokens, Rows<const S> table, Rows<const S> positions, Rows<S> y) {
  const std::int64_t col = column_of_lane();
  const std::int64_t left = cols - col;
  if (left <= 0) return;
  constexpr int kRows = kEmbedRows<kPacked, S>;
  SequenceRows at((block() * kWarps + warp()) * kRows, blocks() * kWarps * kRows, seq);
  for (; at.row < rows; at.next()) {
    const auto count = static_cast<int>(rows - at.row < kRows ? rows - at.row : kRows);
    std::int32_t token[kRows];
    SIMT_UNROLL
    for (int k = 0; k < kRows; ++k) token[k] = k < count ? tokens[at.row + k] : 0;
    Fetched<kPacked, S> row[kRows];
    SIMT_UNROLL
    for (int k = 0; k < kRows; ++k) {
      const bool known = token[k] >= 0 && token[k] < vocab;
      if (known && k < count) row[k].fetch(table.row(token[k]) + col, left);
    }
    Fetched<kPacked, S> added[kRows];
    if (positions) {
      std::int64_t position = at.position;
      SIMT_UNROLL
      for (int k = 0; k < kRows; ++k) {
        if (k < count) added[k].fetch(positions.row(position) + col, left);
        position = position + 1 < seq ? position + 1 : 0;
      }
    }
    SIMT_UNROLL
    for (int k = 0; k < kRows; ++k) {
      if (k >= count) continue;
      const bool known = token[k] >= 0 && token[k] < vocab;
      float value[kPack];
      float position[kPack];
      row[k].get(value);
      added[k].get(position);
      SIMT_UNROLL
      for (int i = 0; i < kPack; ++i) value[i] = known ? value[i] + position[i] : NAN;
      store<kPacked>(y.row(at.row + k) + col, left, value);
    }
  }
}

// sum += rows row_at(i) of dy for i of `count`: those from `first` on, as many as are on their way
// at once, then those from first + step on, ... The rows' numbers come one turn ahead.
template <bool kPacked, class S>
inline constexpr int kInFlight = kPacked ? 16 / static_cast<int>(sizeof(S)) : 1;
template <bool kPacked, class S, class RowAt>
SIMT_FUNCTION void add_rows(int count, int first, int step, RowAt row_at, Rows<const S> dy,
                            std::int64_t col, std::int64_t left, float (&sum)[kPack]) {
  constexpr int kAtOnce = kInFlight<kPacked, S>;
  std::int32_t row[kAtOnce];
  const auto number = [&](int from) {
    SIMT_UNROLL
    for (int k = 0; k < kAtOnce; ++k) row[k] = from + k < count ? row_at(from + k) : -1;
  };
  number(first);
  for (int at = first; at < count; at += step) {
    Fetched<kPacked, S> value[kAtOnce];
    SIMT_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      if (row[k] >= 0) value[k].fetch(dy.row(row[k]) + col, left);
    }
    number(at + step);
    SIMT_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      float one[kPack];
      value[k].get(one);
      SIMT_UNROLL
      for (int i = 0; i < kPack; ++i) sum[i] += one[i];
    }
  }
}

constexpr int kSumThreads = 256;
constexpr int kSumWarps = kSumThreads / kWarp;
constexpr int kRows = 4;                     // of the table, of a warp
constexpr int kSumRows = kSumWarps * kRows;  // of a block
static_assert(kSumRows == kWarp);            // a lane looks one up

// Up to so many tokens of a row are added by one warp, more by all of the block: a comma may be a
// token in twenty.
constexpr int kFew = 16;

// The rows of a block are as far apart as can be, as frequent tokens are neighbours in a table. Of
// most rows there is no token at all: they cost no more than their zeros.
template <bool kPacked, bool kAccumulate, class S>
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
  const std::int64_t left = cols - col;

  // Whose sums this warp makes alone: first what comes first, of all of them.
  const auto is_mine = [&](int i) {
    return left > 0 && to(i) < rows && counts[i] <= kFew && (!kAccumulate || counts[i] > 0);
  };
  Fetched<kPacked, S> first[kRows];
  SIMT_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const int i = warp() + r * kSumWarps;
    if (is_mine(i) && counts[i] > 0) first[r].fetch(dy.row(firsts[i]) + col, left);
  }
  SIMT_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const int i = warp() + r * kSumWarps;
    if (!is_mine(i)) continue;
    float sum[kPack] = {};
    if constexpr (kAccumulate) load<kPacked>(sums.row(to(i)) + col, left, sum);
    float one[kPack];
    first[r].get(one);
    SIMT_UNROLL
    for (int j = 0; j < kPack; ++j) sum[j] += one[j];
    const std::int32_t* const rest = order + begins[i] + 1;
    add_rows<kPacked>(
        counts[i] - 1, 0, kInFlight<kPacked, S>, [&](int k) { return rest[k]; }, dy, col, left,
        sum);
    store<kPacked>(sums.row(to(i)) + col, left, sum);
  }

  for (int i = 0; i < kSumRows; ++i) {
    const int count = counts[i];
    if (count <= kFew) continue;
    constexpr int kAtOnce = kInFlight<kPacked, S>;
    const std::int32_t* const all = order + begins[i];
    float sum[kPack] = {};
    if (left > 0) {
      add_rows<kPacked>(
          count, warp() * kAtOnce, kSumWarps * kAtOnce, [&](int k) { return all[k]; }, dy, col,
          left, sum);
    }
    add_groups<kSumThreads>(sum, warp(), kSumWarps, lane(), kWarp);
    if (warp() > 0 || left <= 0) continue;
    float* const out = sums.row(to(i)) + col;
    if constexpr (kAccumulate) {
      float before[kPack];
      load<kPacked>(out, left, before);
      SIMT_UNROLL
      for (int j = 0; j < kPack; ++j) sum[j] += before[j];
    }
    store<kPacked>(out, left, sum);
  }
}

// A row of the table is the sum of one row of each sequence; behind the sequences' length of none.
template <bool kPacked, bool kAccumulate, class S>
SIMT_KERNEL(kThreads, 8)
void sum_positions(std::int32_t rows, std::int64_t cols, std::int32_t dy_rows, std::int32_t seq,
                   Rows<const S> dy, Rows<float> sums) {
  const std::int64_t col = column_of_lane();
  const std::int64_t left = cols - col;
  const auto position = static_cast<std::int32_t>(block() * kWarps + warp());
  const int count = position < seq ? (dy_rows - position + seq - 1) / seq : 0;
  if (left <= 0 || position >= rows || (kAccumulate && count == 0)) return;
  float sum[kPack] = {};
  if constexpr (kAccumulate) load<kPacked>(sums.row(position) + col, left, sum);
  add_rows<kPacked>(
      count, 0, kInFlight<kPacked, S>, [&](int k) { return position + k * seq; }, dy, col, left,
      sum);
  store<kPacked>(sums.row(position) + col, left, sum);
}

// f.operator()<kPacked, kAccumulate, S>().
template <class F>
void with_sums(const Tensor& dy, const Tensor& sums, bool accumulate, F&& f) {
  with_packing(is_packed({&dy, &sums}), [&]<bool kPacked>() {
    with_storage(dy.dtype, [&]<class S>() {
      if (accumulate) {
        f.template operator()<kPacked, true, S>();
      } else {
        f.template operator()<kPacked, false, S>();
      }
    });
  });
}

Grid grid_of(std::int64_t blocks, std::int64_t cols) {
  return {static_cast<unsigned>(blocks), static_cast<unsigned>(ceil_div(cols, kWarpCols))};
}

}  // namespace

void run(const Embed& op, const Launch& where) {
  // As many blocks as the GPU holds at once, not one more.
  constexpr std::int64_t kBlocksHeld = 8;
  const std::int64_t most = std::max<std::int64_t>(
      where.multiprocessors * kBlocksHeld / ceil_div(op.y.cols, kWarpCols), 1);
  with_packing(is_packed({&op.table, &op.positions, &op.y}), [&]<bool kPacked>() {
    with_storage(op.y.dtype, [&]<class S>() {
      const std::int64_t all = ceil_div(op.y.rows, kWarps * kEmbedRows<kPacked, S>);
      const Grid grid = grid_of(std::min(all, most), op.y.cols);
      launch("embed", embed<kPacked, S>, grid, kThreads, where, op.y.rows, op.y.cols, op.table.rows,
             op.positions ? op.seq : op.y.rows, static_cast<const std::int32_t*>(op.tokens.data),
             rows_of<const S>(op.table), rows_of<const S>(op.positions), rows_of<S>(op.y));
    });
  });
}

void run(const EmbedBackward& op, const Launch& where) {
  if (const Tensor& to = op.dtable) {
    with_sums(op.dy, to, op.accumulate_table, [&]<bool kPacked, bool kAccumulate, class S>() {
      launch("embed_backward", sum_tokens<kPacked, kAccumulate, S>,
             grid_of(ceil_div(to.rows, kSumRows), to.cols), kSumThreads, where, to.rows, to.cols,
             static_cast<const std::int32_t*>(op.order.data),
             static_cast<const std::int32_t*>(op.starts.data), rows_of<const S>(op.dy),
             rows_of<float>(to));
    });
  }
  if (const Tensor& to = op.dpositions) {
    with_sums(op.dy, to, op.accumulate_positions, [&]<bool kPacked, bool kAccumulate, class S>() {
      launch("embed_backward positions", sum_positions<kPacked, kAccumulate, S>,
             grid_of(ceil_div(to.rows, kWarps), to.cols), kThreads, where, to.rows, to.cols,
             op.dy.rows, op.seq, rows_of<const S>(op.dy), rows_of<float>(to));
    });
  }
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
