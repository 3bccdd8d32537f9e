// Embedding. Forward: a pack of a row a thread and turn. Backward: the tokens of one row of the
// table after another, by the thread that has these columns: one order, no atomics. Rounded once:
// y; gradients are sums in f32.
#include "trainer/device/cuda/kernel/elements.h"
#include "trainer/device/cuda/kernel/sequences.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {
namespace {

// Small blocks, so that few threads idle in rows of 768 or 1024 columns.
constexpr int kThreads = 128;

template <bool kPacked, class S>
SIMT_KERNEL(kThreads)
void embed(Packs packs, std::int64_t vocab, std::int64_t seq, const std::int32_t* tokens,
           Rows<const S> table, Rows<const S> positions, Rows<S> y) {
  for (SequenceRows at(block_y(), blocks_y(), seq); at.row < packs.rows; at.next()) {
    const std::int64_t token = tokens[at.row];
    const bool known = token >= 0 && token < vocab;
    for (std::int64_t col = (block() * kThreads + thread()) * kPack; col < packs.cols;
         col += blocks() * kThreads * kPack) {
      const std::int64_t left = packs.cols - col;
      float value[kPack];
      load<kPacked>(table.row(known ? token : 0) + col, left, value);
      if (positions) {
        float position[kPack];
        load<kPacked>(positions.row(at.position) + col, left, position);
        SIMT_UNROLL
        for (int i = 0; i < kPack; ++i) value[i] += position[i];
      }
      SIMT_UNROLL
      for (int i = 0; i < kPack; ++i) value[i] = known ? value[i] : NAN;
      store<kPacked>(y.row(at.row) + col, left, value);
    }
  }
}

// Which rows of dy a row of a gradient is the sum of: their count, and the first, second, ...
struct ByToken {
  static constexpr int kInFlight = 4;  // of f32; of bf16 twice as many
  const std::int32_t* order;
  const std::int32_t* starts;
  SIMT_FUNCTION std::int64_t begin(std::int64_t token) const { return starts[token]; }
  SIMT_FUNCTION std::int64_t count(std::int64_t token) const {
    return starts[token + 1] - starts[token];
  }
  SIMT_FUNCTION std::int64_t row(std::int64_t begin, std::int64_t i) const {
    return order[begin + i];
  }
};
struct ByPosition {
  static constexpr int kInFlight = 2;
  std::int64_t rows;  // of dy
  std::int64_t seq;
  SIMT_FUNCTION std::int64_t begin(std::int64_t position) const { return position; }
  // A table of positions may be longer than the sequences.
  SIMT_FUNCTION std::int64_t count(std::int64_t position) const {
    return position < seq ? (rows - position + seq - 1) / seq : 0;
  }
  SIMT_FUNCTION std::int64_t row(std::int64_t begin, std::int64_t i) const {
    return begin + i * seq;
  }
};

template <bool kPacked, bool kAccumulate, class S, class By>
SIMT_KERNEL(kThreads, 8)
void sum_rows(Packs packs, By by, Rows<const S> dy, Rows<float> sums) {
  // Rows of dy that are on their way at once: a frequent token's would else come one by one.
  constexpr int kInFlight = kPacked ? By::kInFlight * 4 / static_cast<int>(sizeof(S)) : 1;
  for (std::int64_t to = block_y(); to < packs.rows; to += blocks_y()) {
    const std::int64_t count = by.count(to);
    if (kAccumulate && count == 0) continue;
    const std::int64_t begin = by.begin(to);
    for (std::int64_t col = (block() * kThreads + thread()) * kPack; col < packs.cols;
         col += blocks() * kThreads * kPack) {
      const std::int64_t left = packs.cols - col;
      float sum[kPack] = {};
      if constexpr (kAccumulate) load<kPacked>(sums.row(to) + col, left, sum);
      std::int64_t i = 0;
      for (; i + kInFlight <= count; i += kInFlight) {
        float value[kInFlight][kPack];
        SIMT_UNROLL
        for (int k = 0; k < kInFlight; ++k)
          load<kPacked>(dy.row(by.row(begin, i + k)) + col, left, value[k]);
        SIMT_UNROLL
        for (int k = 0; k < kInFlight; ++k) {
          SIMT_UNROLL
          for (int j = 0; j < kPack; ++j) sum[j] += value[k][j];
        }
      }
      for (; i < count; ++i) {
        float value[kPack];
        load<kPacked>(dy.row(by.row(begin, i)) + col, left, value);
        SIMT_UNROLL
        for (int j = 0; j < kPack; ++j) sum[j] += value[j];
      }
      store<kPacked>(sums.row(to) + col, left, sum);
    }
  }
}

template <class By>
void launch_sum(const char* name, const Tensor& dy, const Tensor& sums, bool accumulate, By by,
                const Launch& where) {
  const Packs packs{sums.rows, sums.cols};
  with_packing(is_packed({&dy, &sums}), [&]<bool kPacked>() {
    with_storage(dy.dtype, [&]<class S>() {
      const auto kernel =
          accumulate ? sum_rows<kPacked, true, S, By> : sum_rows<kPacked, false, S, By>;
      launch(name, kernel, packs.grid(kThreads, where), kThreads, where, packs, by,
             rows_of<const S>(dy), rows_of<float>(sums));
    });
  });
}

}  // namespace

void run(const Embed& op, const Launch& where) {
  const Packs packs{op.y.rows, op.y.cols};
  with_packing(is_packed({&op.table, &op.positions, &op.y}), [&]<bool kPacked>() {
    with_storage(op.y.dtype, [&]<class S>() {
      launch("embed", embed<kPacked, S>, packs.grid(kThreads, where), kThreads, where, packs,
             op.table.rows, op.positions ? op.seq : op.y.rows,
             static_cast<const std::int32_t*>(op.tokens.data), rows_of<const S>(op.table),
             rows_of<const S>(op.positions), rows_of<S>(op.y));
    });
  });
}

void run(const EmbedBackward& op, const Launch& where) {
  if (op.dtable) {
    launch_sum("embed_backward", op.dy, op.dtable, op.accumulate_table,
               ByToken{static_cast<const std::int32_t*>(op.order.data),
                       static_cast<const std::int32_t*>(op.starts.data)},
               where);
  }
  if (op.dpositions) {
    launch_sum("embed_backward positions", op.dy, op.dpositions, op.accumulate_positions,
               ByPosition{op.dy.rows, op.seq}, where);
  }
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
