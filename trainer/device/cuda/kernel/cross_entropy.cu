// The loss. A block a row, which is read once: into shared memory, where it stays until dlogits are
// written in its place; of a row that is longer than that, the rest is read twice. Rounded once:
// dlogits (the target's too, from its own difference), row_loss, state->loss.
#include "trainer/device/cuda/kernel/exponential.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {
namespace {

// A row's two exponentials a logit take a multiprocessor about 60 % of the time that its bytes do,
// so two blocks are to share one: while one waits or writes, the other computes.
constexpr int kThreads = 512;

// Logits of packs that are beyond the vocabulary count for nothing.
template <class T>
SIMT_FUNCTION void mask(T (&value)[kPack], int left, T none) {
  if (left >= kPack) return;
  SIMT_UNROLL
  for (int i = 0; i < kPack; ++i) value[i] = i < left ? value[i] : none;
}

// What is known of a row when all of it has been seen, and what becomes of its logits.
struct RowLoss {
  SumOfExponentials all;
  std::int32_t target;
  float at_target;
  float factor;

  // left: columns of the vocabulary from `col` on.
  SIMT_FUNCTION void gradient(float (&value)[kPack], int col, int left) const {
    const float scale = factor / all.sum;
    SIMT_UNROLL
    for (int i = 0; i < kPack; ++i) value[i] = exponential(value[i] - all.largest) * scale;
    mask(value, left, 0.0F);
    const int here = target - col;
    if (here < 0 || here >= kPack) return;
    const float difference = (exponential(at_target - all.largest) / all.sum - 1.0F) * factor;
    SIMT_UNROLL
    for (int i = 0; i < kPack; ++i) value[i] = i == here ? difference : value[i];
  }
  SIMT_FUNCTION float loss() const {
    return static_cast<float>(all.log() - static_cast<double>(at_target));
  }
};

template <bool kPacked, class S>
SIMT_FUNCTION void ignore_row(S* row, int cols, float* row_loss) {
  const float zero[kPack] = {};
  for (int col = thread() * kPack; col < cols; col += kThreads * kPack)
    store<kPacked>(row + col, cols - col, zero);
  if (thread() == 0) row_loss[block()] = 0;
}

constexpr int kAtOnce = 2;                 // packs that a thread adds at once
constexpr int kAhead = 4;                  // times as many are on their way
constexpr int kTurn = kThreads * kAtOnce;  // packs of a block

// held: packs of the row that shared memory has room for, whole turns if not all.
template <class S>
SIMT_KERNEL(kThreads, 2)
void cross_entropy(int cols, int vocab, int held, Rows<S> logits, const std::int32_t* targets,
                   float* row_loss, const StepInputs* in) {
  S* const row = logits.row(block());
  Words* const shared = launch_shared();
  const int packs = cols / kPack;
  const int seen = (vocab + kPack - 1) / kPack;  // packs that have logits of the vocabulary
  const auto fetch = [&](int first) {
    SIMT_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const int p = first + i * kThreads;
      if (p < held) copy_raw_ahead(shared + p, held, row + p * kPack);
    }
    end_copies();
  };
  const auto read = [&](int p) {
    if (p < held) return load_shared<S>(shared + p, held);
    return load_raw(row + p * kPack);
  };
  // A thread reads of shared memory what itself has copied.
  SIMT_UNROLL
  for (int turn = 0; turn < kAhead; ++turn) fetch(thread() + turn * kTurn);
  const std::int32_t target = targets[block()];
  const float factor = in->inv_tokens;
  if (target < 0) {
    wait_copies<0>();
    return ignore_row<true>(row, cols, row_loss);
  }
  // Read by all before the first sync() of over_block, written by one after it.
  const float at_target = target < vocab ? to_float(row[target]) : NAN;

  SumOfExponentials part;
  for (int first = thread(); first < seen; first += kTurn) {
    wait_copies<kAhead - 1>();
    Raw<S> raw[kAtOnce] = {};
    SIMT_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i * kThreads < seen) raw[i] = read(first + i * kThreads);
    }
    fetch(first + kAhead * kTurn);
    float value[kAtOnce * kPack];
    SIMT_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      float one[kPack];
      unpack(raw[i], one);
      mask(one, vocab - (first + i * kThreads) * kPack, -INFINITY);
      SIMT_UNROLL
      for (int j = 0; j < kPack; ++j) value[i * kPack + j] = one[j];
    }
    part.add(value);
  }
  const RowLoss loss{part.over_block<kThreads>(), target, at_target, factor};
  for (int p = thread(); p < packs; p += kThreads) {
    float value[kPack] = {};
    if (p < seen) unpack(read(p), value);
    loss.gradient(value, p * kPack, vocab - p * kPack);
    store<true>(row + p * kPack, kPack, value);
  }
  // By the thread that has the least to write: logarithms in f64 take long.
  if (thread() == kThreads - 1) row_loss[block()] = loss.loss();
}

// Element by element, read twice.
template <class S>
SIMT_KERNEL(kThreads)
void cross_entropy_of_any(int cols, int vocab, Rows<S> logits, const std::int32_t* targets,
                          float* row_loss, const StepInputs* in) {
  S* const row = logits.row(block());
  const std::int32_t target = targets[block()];
  if (target < 0) return ignore_row<false>(row, cols, row_loss);
  // As above.
  const float at_target = target < vocab ? to_float(row[target]) : NAN;
  SumOfExponentials part;
  for (int col = thread() * kPack; col < vocab; col += kThreads * kPack) {
    float value[kPack];
    load<false>(row + col, vocab - col, value);
    mask(value, vocab - col, -INFINITY);
    part.add(value);
  }
  const RowLoss loss{part.over_block<kThreads>(), target, at_target, in->inv_tokens};
  for (int col = thread() * kPack; col < cols; col += kThreads * kPack) {
    float value[kPack];
    load<false>(row + col, vocab - col, value);
    loss.gradient(value, col, vocab - col);
    store<false>(row + col, cols - col, value);
  }
  if (thread() == kThreads - 1) row_loss[block()] = loss.loss();
}

template <int kSumThreads>
SIMT_KERNEL(kSumThreads)
void sum_loss(std::int64_t count, bool accumulate, const float* row_loss, const StepInputs* in,
              StepState* state) {
  double sum = 0;
  for (std::int64_t i = thread(); i < count; i += kSumThreads)
    sum += static_cast<double>(row_loss[i]);
  sum = over_block<kSumThreads>(sum, 0.0, Sum());
  if (thread() != 0) return;
  const double before = accumulate ? static_cast<double>(state->loss) : 0.0;
  state->loss = static_cast<float>(before + sum * static_cast<double>(in->inv_tokens));
}

}  // namespace

void run(const CrossEntropy& op, const Launch& where) {
  with_storage(op.logits.dtype, [&]<class S>() {
    const auto cols = static_cast<int>(op.logits.cols);
    const auto vocab = static_cast<int>(op.vocab);
    const auto* const targets = static_cast<const std::int32_t*>(op.targets.data);
    auto* const row_loss = static_cast<float*>(op.row_loss.data);
    Grid grid{static_cast<unsigned>(op.logits.rows), 1};
    if (!is_packed({&op.logits})) {
      launch("cross_entropy", cross_entropy_of_any<S>, grid, kThreads, where, cols, vocab,
             rows_of<S>(op.logits), targets, row_loss, op.in);
      return;
    }
    constexpr int kOwnBytes = 1024;  // what over_block() declares, and some more
    constexpr int kPackBytes = static_cast<int>(sizeof(S)) * kPack;
    const int room = (where.shared_bytes - kOwnBytes) / kPackBytes;
    int held = static_cast<int>(ceil_div(vocab, kPack));
    if (held > room) held = room / kTurn * kTurn;
    grid.shared_bytes = static_cast<unsigned>(held * kPackBytes);
    launch("cross_entropy", cross_entropy<S>, grid, kThreads, where, cols, vocab, held,
           rows_of<S>(op.logits), targets, row_loss, op.in);
  });
}

void run(const SumLoss& op, const Launch& where) {
  constexpr int kSumThreads = 1024;
  launch("sum_loss", sum_loss<kSumThreads>, Grid{1, 1}, kSumThreads, where, op.row_loss.cols,
         op.accumulate, static_cast<const float*>(op.row_loss.data), op.in, op.state);
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
