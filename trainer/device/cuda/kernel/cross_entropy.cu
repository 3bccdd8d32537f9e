// SPDX-License-Identifier: Apache-2.0
// Cross-entropy loss, a block a row. The row is read once, into shared memory, and stays resident
// there until dlogits overwrite the logits. If a row is longer than shared memory, its rest is read
// twice. Rounded once: dlogits (the target's too, from its own difference), row_loss, state->loss.
#include "trainer/device/cuda/kernel/exponential.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {
namespace {

// A multiprocessor needs about 60 % of a row's transfer time for its two exponentials a logit. Two
// blocks per multiprocessor overlap: one computes while the other waits or writes.
constexpr int kThreads = 512;

// Replaces the vector's elements beyond the vocabulary by `none`.
template <class T>
SIMT_FUNCTION void mask(T (&value)[kVecSize], int remaining, T none) {
  if (remaining >= kVecSize) return;
  SIMT_UNROLL
  for (int i = 0; i < kVecSize; ++i) value[i] = i < remaining ? value[i] : none;
}

// A row's statistics once all of it has been read, and the gradient of its logits.
struct RowLoss {
  SumOfExponentials all;
  std::int32_t target;
  float at_target;
  float factor;

  // dlogits = (softmax - one_hot(target)) * factor. remaining: columns of the vocabulary from `col`
  // on.
  SIMT_FUNCTION void gradient(float (&value)[kVecSize], int col, int remaining) const {
    const float scale = factor / all.sum;
    SIMT_UNROLL
    for (int i = 0; i < kVecSize; ++i) value[i] = exponential(value[i] - all.largest) * scale;
    mask(value, remaining, 0.0F);
    const int here = target - col;
    if (here < 0 || here >= kVecSize) return;
    const float difference = (exponential(at_target - all.largest) / all.sum - 1.0F) * factor;
    SIMT_UNROLL
    for (int i = 0; i < kVecSize; ++i) value[i] = i == here ? difference : value[i];
  }
  SIMT_FUNCTION float loss() const {
    return static_cast<float>(all.log() - static_cast<double>(at_target));
  }
};

template <bool kVectorized, class S>
SIMT_FUNCTION void ignore_row(S* row, int cols, float* row_loss) {
  const float zero[kVecSize] = {};
  for (int col = thread() * kVecSize; col < cols; col += kThreads * kVecSize)
    store<kVectorized>(row + col, cols - col, zero);
  if (thread() == 0) row_loss[block()] = 0;
}

constexpr int kUnroll = 2;                 // vectors that a thread adds at once
constexpr int kStages = 4;                 // kUnroll vectors each are in flight
constexpr int kTile = kThreads * kUnroll;  // vectors that a block adds at once

// resident: vectors of the row that fit into shared memory; whole tiles if that is not all.
template <class S>
SIMT_KERNEL(kThreads, 2)
void cross_entropy(int cols, int vocab, int resident, Rows<S> logits, const std::int32_t* targets,
                   float* row_loss, const StepInputs* in) {
  S* const row = logits.row(block());
  Vec4* const shared = dynamic_shared();
  const int vectors = cols / kVecSize;
  const int vocab_vectors = (vocab + kVecSize - 1) / kVecSize;  // the last one may have a tail
  const auto fetch = [&](int first) {
    SIMT_UNROLL
    for (int i = 0; i < kUnroll; ++i) {
      const int p = first + i * kThreads;
      if (p < resident) cp_async_packed(shared + p, resident, row + p * kVecSize);
    }
    cp_async_commit();
  };
  const auto read = [&](int p) {
    if (p < resident) return load_shared<S>(shared + p, resident);
    return load_packed(row + p * kVecSize);
  };
  // The pipeline's prologue. A thread reads back only the shared memory that it copied itself, so
  // it needs no sync().
  SIMT_UNROLL
  for (int stage = 0; stage < kStages; ++stage) fetch(thread() + stage * kTile);
  const std::int32_t target = targets[block()];
  const float factor = in->inv_tokens;
  if (target < 0) {
    cp_async_wait<0>();
    return ignore_row<true>(row, cols, row_loss);
  }
  // All threads read the target's logit before the first sync() of block_reduce; one of them
  // overwrites it after that.
  const float at_target = target < vocab ? to_float(row[target]) : NAN;

  SumOfExponentials part;
  for (int first = thread(); first < vocab_vectors; first += kTile) {
    cp_async_wait<kStages - 1>();
    Packed<S> raw[kUnroll] = {};
    SIMT_UNROLL
    for (int i = 0; i < kUnroll; ++i) {
      if (first + i * kThreads < vocab_vectors) raw[i] = read(first + i * kThreads);
    }
    fetch(first + kStages * kTile);
    float value[kUnroll * kVecSize];
    SIMT_UNROLL
    for (int i = 0; i < kUnroll; ++i) {
      float one[kVecSize];
      unpack(raw[i], one);
      mask(one, vocab - (first + i * kThreads) * kVecSize, -INFINITY);
      SIMT_UNROLL
      for (int j = 0; j < kVecSize; ++j) value[i * kVecSize + j] = one[j];
    }
    part.add(value);
  }
  const RowLoss loss{part.block_reduce<kThreads>(), target, at_target, factor};
  for (int p = thread(); p < vectors; p += kThreads) {
    float value[kVecSize] = {};
    if (p < vocab_vectors) unpack(read(p), value);
    loss.gradient(value, p * kVecSize, vocab - p * kVecSize);
    store<true>(row + p * kVecSize, kVecSize, value);
  }
  // The last thread has the least to write, and logarithms in f64 are slow.
  if (thread() == kThreads - 1) row_loss[block()] = loss.loss();
}

// Unaligned rows: element by element, and each row is read twice.
template <class S>
SIMT_KERNEL(kThreads)
void cross_entropy_scalar(int cols, int vocab, Rows<S> logits, const std::int32_t* targets,
                          float* row_loss, const StepInputs* in) {
  S* const row = logits.row(block());
  const std::int32_t target = targets[block()];
  if (target < 0) return ignore_row<false>(row, cols, row_loss);
  // All threads read it before the first sync() of block_reduce, as above.
  const float at_target = target < vocab ? to_float(row[target]) : NAN;
  SumOfExponentials part;
  for (int col = thread() * kVecSize; col < vocab; col += kThreads * kVecSize) {
    float value[kVecSize];
    load<false>(row + col, vocab - col, value);
    mask(value, vocab - col, -INFINITY);
    part.add(value);
  }
  const RowLoss loss{part.block_reduce<kThreads>(), target, at_target, in->inv_tokens};
  for (int col = thread() * kVecSize; col < cols; col += kThreads * kVecSize) {
    float value[kVecSize];
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
  sum = block_reduce<kSumThreads>(sum, 0.0, Sum());
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
    if (!is_vectorizable({&op.logits})) {
      launch("cross_entropy", cross_entropy_scalar<S>, grid, kThreads, where, cols, vocab,
             rows_of<S>(op.logits), targets, row_loss, op.in);
      return;
    }
    constexpr int kOwnBytes = 1024;  // static shared memory of block_reduce(), rounded up
    constexpr int kVectorBytes = static_cast<int>(sizeof(S)) * kVecSize;
    const int room = (where.max_shared_bytes - kOwnBytes) / kVectorBytes;
    int resident = static_cast<int>(ceil_div(vocab, kVecSize));
    if (resident > room) resident = room / kTile * kTile;
    grid.dynamic_shared_bytes = static_cast<unsigned>(resident * kVectorBytes);
    launch("cross_entropy", cross_entropy<S>, grid, kThreads, where, cols, vocab, resident,
           rows_of<S>(op.logits), targets, row_loss, op.in);
  });
}

void run(const SumLoss& op, const Launch& where) {
  constexpr int kSumThreads = 1024;
  launch("sum_loss", sum_loss<kSumThreads>, Grid{1, 1}, kSumThreads, where, op.row_loss.cols,
         op.accumulate, static_cast<const float*>(op.row_loss.data), op.in, op.state);
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
