// SPDX-License-Identifier: Apache-2.0
// The kernels of unfused attention beside its GEMMs: causal softmax of rows of scores, forward and
// backward, a block a row, and the row sums of dout * out. Rounded once: probabilities, dscores,
// and to f32 lse and row_sum.
#include "trainer/device/cuda/kernel/exponential.h"
#include "trainer/device/cuda/kernel/sequences.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {
namespace {

// Threads of a block for short and long rows, and the keys from which a row is long.
constexpr int kShortRowThreads = 64;
constexpr int kLongRowThreads = 256;
constexpr std::int64_t kLongRowKeys = 4096;

// Heads of a launch: it takes their ALiBi slopes by value.
constexpr std::int64_t kHeads = 256;
struct Slopes {
  float at[kHeads];
};

// Score matrices [heads, rows, ld] of a launch, and where their rows lie in lse and row_sum.
struct ScoreTile {
  std::int64_t rows, ld;
  std::int64_t first_row;
  std::int64_t first_statistics;  // row of lse and row_sum of the first head
  float scale;
};

// The row of this block: the block's x is the query, its y the head.
struct Row {
  std::int64_t begin;  // in the score matrices
  std::int64_t keys;   // visible to the query
  float slope;         // of ALiBi
  float scale;

  SIMT_FUNCTION Row(const ScoreTile& tile, const Slopes& slopes)
      : begin((block_y() * tile.rows + block()) * tile.ld),
        keys(tile.first_row + block() + 1),
        slope(slopes.at[block_y()]),
        scale(tile.scale) {}

  // Loads scaled and biased scores from key `col` on: minus infinity for keys after the query.
  SIMT_FUNCTION void load_scores(const float* scores, std::int64_t col,
                                 float (&score)[kVecSize]) const {
    load<true>(scores + begin + col, kVecSize, score);
    const auto distance = static_cast<int>(col - (keys - 1));
    const auto first = static_cast<float>(distance);  // exact, as are its neighbours: below 2^24
    SIMT_UNROLL
    for (int i = 0; i < kVecSize; ++i) {
      const float biased = score[i] * scale + slope * (first + static_cast<float>(i));
      score[i] = i <= -distance ? biased : -INFINITY;
    }
  }
  // Returns how many keys of a vector from key `col` on the query sees.
  SIMT_FUNCTION int seen(std::int64_t col) const {
    return static_cast<int>(keys - col < kVecSize ? keys - col : kVecSize);
  }
};

template <int kThreads, class S>
SIMT_KERNEL(kThreads)
void softmax(ScoreTile tile, Slopes slopes, const float* scores, S* probabilities,
             Rows<float> lse) {
  constexpr std::int64_t kTile = kThreads * kVecSize;
  const Row row(tile, slopes);
  SumOfExponentials of_thread;
  for (std::int64_t col = thread() * kVecSize; col < row.keys; col += kTile) {
    float score[kVecSize];
    row.load_scores(scores, col, score);
    of_thread.add(score);
  }
  const SumOfExponentials all = of_thread.block_reduce<kThreads>();
  if (thread() == 0)
    lse.row(tile.first_statistics + block_y())[row.keys - 1] = static_cast<float>(all.log());
  const float inverse = 1 / all.sum;
  // A thread overwrites only what it read itself, so scores and probabilities may be one matrix.
  for (std::int64_t col = thread() * kVecSize; col < tile.ld; col += kTile) {
    float p[kVecSize] = {};
    if (col < row.keys) {
      row.load_scores(scores, col, p);
      const int seen = row.seen(col);
      SIMT_UNROLL
      for (int i = 0; i < kVecSize; ++i)
        p[i] = i < seen ? exponential(p[i] - all.largest) * inverse : 0.0F;
    }
    store<true>(probabilities + row.begin + col, kVecSize, p);
  }
}

template <int kThreads, class S>
SIMT_KERNEL(kThreads)
void softmax_backward(ScoreTile tile, Slopes slopes, const float* scores,
                      const float* dprobabilities, S* probabilities, S* dscores,
                      Rows<const float> lse, Rows<const float> row_sum) {
  const Row row(tile, slopes);
  const float log_sum = lse.row(tile.first_statistics + block_y())[row.keys - 1];
  const float sum = row_sum.row(tile.first_statistics + block_y())[row.keys - 1];
  for (std::int64_t col = thread() * kVecSize; col < tile.ld; col += kThreads * kVecSize) {
    float p[kVecSize] = {};
    float d[kVecSize] = {};
    if (col < row.keys) {
      row.load_scores(scores, col, p);
      load<true>(dprobabilities + row.begin + col, kVecSize, d);
      const int seen = row.seen(col);
      SIMT_UNROLL
      for (int i = 0; i < kVecSize; ++i) {
        p[i] = i < seen ? exponential(p[i] - log_sum) : 0.0F;
        d[i] = i < seen ? p[i] * (d[i] - sum) * row.scale : 0.0F;
      }
    }
    store<true>(probabilities + row.begin + col, kVecSize, p);
    store<true>(dscores + row.begin + col, kVecSize, d);
  }
}

constexpr int kSumThreads = 256;

// kLanes lanes of a warp reduce one head of a row; a block takes as many heads of the row as it has
// room for.
template <bool kVectorized, int kLanes, class S>
SIMT_KERNEL(kSumThreads)
void row_sums(std::int64_t rows, std::int64_t seq, std::int64_t heads, std::int64_t head_dim,
              Rows<const S> dout, Rows<const S> out, Rows<float> row_sum) {
  const std::int64_t head = block() * (kSumThreads / kLanes) + thread() / kLanes;
  for (SequenceRows at(block_y(), blocks_y(), seq); at.row < rows; at.next()) {
    float sum = 0;
    if (head < heads) {
      const std::int64_t begin = head * head_dim;
      for (std::int64_t col = thread() % kLanes * kVecSize; col < head_dim;
           col += kLanes * kVecSize) {
        float a[kVecSize];
        float b[kVecSize];
        load<kVectorized>(dout.row(at.row) + begin + col, head_dim - col, a);
        load<kVectorized>(out.row(at.row) + begin + col, head_dim - col, b);
        SIMT_UNROLL
        for (int i = 0; i < kVecSize; ++i) sum += a[i] * b[i];
      }
    }
    SIMT_UNROLL
    for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) sum += shuffle_xor(sum, lanes);
    if (head < heads && thread() % kLanes == 0)
      row_sum.row(at.sequence * heads + head)[at.position] = sum;
  }
}

// Calls f(tile, slopes, first element, grid) for at most kHeads heads at a time.
template <class F>
void for_heads(const Scores& at, F&& f) {
  const AttentionShape& s = at.shape;
  for (std::int64_t first = 0; first < at.heads; first += kHeads) {
    const std::int64_t heads = std::min(kHeads, at.heads - first);
    const ScoreTile tile{at.rows, at.ld, at.first_row, at.batch * s.q_heads + at.first_head + first,
                         s.scale};
    Slopes slopes{};
    for (std::int64_t i = 0; i < heads && s.alibi_bias_max != 0; ++i) {
      slopes.at[i] = static_cast<float>(
          alibi_slope(at.first_head + first + i, s.q_heads, static_cast<double>(s.alibi_bias_max)));
    }
    f(tile, slopes, first * at.rows * at.ld,
      Grid{static_cast<unsigned>(at.rows), static_cast<unsigned>(heads)});
  }
}

// Calls f.operator()<kThreads>().
template <class F>
void with_threads(std::int64_t keys, F&& f) {
  if (keys < kLongRowKeys) {
    f.template operator()<kShortRowThreads>();
  } else {
    f.template operator()<kLongRowThreads>();
  }
}

}  // namespace

void run(const SoftmaxForward& op, const Launch& where) {
  with_threads(op.at.keys, [&]<int kThreads>() {
    with_storage(op.probabilities.dtype, [&]<class S>() {
      for_heads(op.at,
                [&](const ScoreTile& tile, const Slopes& slopes, std::int64_t begin, Grid grid) {
                  launch("softmax", softmax<kThreads, S>, grid, kThreads, where, tile, slopes,
                         op.at.scores + begin, static_cast<S*>(op.probabilities.data) + begin,
                         rows_of<float>(op.lse));
                });
    });
  });
}

void run(const SoftmaxBackward& op, const Launch& where) {
  with_threads(op.at.keys, [&]<int kThreads>() {
    with_storage(op.probabilities.dtype, [&]<class S>() {
      for_heads(op.at,
                [&](const ScoreTile& tile, const Slopes& slopes, std::int64_t begin, Grid grid) {
                  launch("softmax_backward", softmax_backward<kThreads, S>, grid, kThreads, where,
                         tile, slopes, op.at.scores + begin, op.dprobabilities + begin,
                         static_cast<S*>(op.probabilities.data) + begin,
                         static_cast<S*>(op.dscores.data) + begin, rows_of<const float>(op.lse),
                         rows_of<const float>(op.row_sum));
                });
    });
  });
}

void run(const RowSum& op, const Launch& where) {
  const AttentionShape& s = op.shape;
  const bool vectorizable = is_vectorizable({&op.dout, &op.out}) && s.head_dim % kVecSize == 0;
  with_vectorization(vectorizable, [&]<bool kVectorized>() {
    with_storage(op.out.dtype, [&]<class S>() {
      const auto start = [&]<int kLanes>() {
        constexpr std::int64_t kMaxY = 65535;
        const std::int64_t x = ceil_div(s.q_heads, kSumThreads / kLanes);
        constexpr std::int64_t kOccupancy = 8;  // blocks per multiprocessor
        const std::int64_t y = std::clamp<std::int64_t>(
            ceil_div(where.multiprocessors * kOccupancy, x), 1, std::min(op.out.rows, kMaxY));
        launch("row_sum", row_sums<kVectorized, kLanes, S>,
               Grid{static_cast<unsigned>(x), static_cast<unsigned>(y)}, kSumThreads, where,
               op.out.rows, s.seq, s.q_heads, s.head_dim, rows_of<const S>(op.dout),
               rows_of<const S>(op.out), rows_of<float>(op.row_sum));
      };
      if (s.head_dim <= 8 * kVecSize) {
        start.template operator()<8>();
      } else {
        start.template operator()<16>();
      }
    });
  });
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
