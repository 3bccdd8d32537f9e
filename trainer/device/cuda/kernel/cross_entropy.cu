// The loss. A block a row, which it reads twice: for the largest logit and the sum of exponentials,
// then, mostly from the L2 cache, to write dlogits in its place. Rounded once: dlogits (the
// target's too, from its own difference), row_loss, state->loss.
#include "trainer/device/cuda/kernel/exponential.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {
namespace {

// Few rows at once, so that they stay in the cache until they are read again.
constexpr int kThreads = 1024;

template <bool kPacked, class S>
SIMT_KERNEL(kThreads)
void cross_entropy(std::int64_t cols, std::int64_t vocab, Rows<S> logits,
                   const std::int32_t* targets, float* row_loss, const StepInputs* in) {
  constexpr std::int64_t kTurn = kThreads * kPack;
  S* const row = logits.row(block());
  const std::int64_t target = targets[block()];
  if (target < 0) {
    const float zero[kPack] = {};
    for (std::int64_t col = thread() * kPack; col < cols; col += kTurn)
      store<kPacked>(row + col, cols - col, zero);
    if (thread() == 0) row_loss[block()] = 0;
    return;
  }
  // Read by all before the first sync() of over_block, written by one after it.
  const float at_target = target < vocab ? to_float(row[target]) : NAN;

  SumOfExponentials part;
  for (std::int64_t col = thread() * kPack; col < vocab; col += kTurn) {
    const std::int64_t left = vocab - col;
    float value[kPack];
    load<kPacked>(row + col, left, value);
    if (left < kPack) {
      SIMT_UNROLL
      for (int i = 0; i < kPack; ++i) value[i] = i < left ? value[i] : -INFINITY;
    }
    part.add(value);
  }
  const SumOfExponentials all = part.over_block<kThreads>();
  const float factor = in->inv_tokens;
  const float scale = factor / all.sum;
  if (thread() == 0)
    row_loss[block()] = static_cast<float>(all.log() - static_cast<double>(at_target));

  for (std::int64_t col = thread() * kPack; col < cols; col += kTurn) {
    const std::int64_t left = vocab - col;
    float value[kPack];
    load<kPacked>(row + col, cols - col, value);
    SIMT_UNROLL
    for (int i = 0; i < kPack; ++i) value[i] = exponential(value[i] - all.largest) * scale;
    if (left < kPack) {
      SIMT_UNROLL
      for (int i = 0; i < kPack; ++i) value[i] = i < left ? value[i] : 0.0F;
    }
    const std::int64_t here = target - col;
    if (here >= 0 && here < kPack) {
      const float difference = (exponential(at_target - all.largest) / all.sum - 1.0F) * factor;
      SIMT_UNROLL
      for (int i = 0; i < kPack; ++i) value[i] = i == here ? difference : value[i];
    }
    store<kPacked>(row + col, cols - col, value);
  }
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
  with_packing(is_packed({&op.logits}), [&]<bool kPacked>() {
    with_storage(op.logits.dtype, [&]<class S>() {
      launch("cross_entropy", cross_entropy<kPacked, S>,
             Grid{static_cast<unsigned>(op.logits.rows), 1}, kThreads, where, op.logits.cols,
             op.vocab, rows_of<S>(op.logits), static_cast<const std::int32_t*>(op.targets.data),
             static_cast<float*>(op.row_loss.data), op.in);
    });
  });
}

void run(const SumLoss& op, const Launch& where) {
  constexpr int kSumThreads = 1024;
  launch("sum_loss", sum_loss<kSumThreads>, Grid{1, 1}, kSumThreads, where, op.row_loss.cols,
         op.accumulate, static_cast<const float*>(op.row_loss.data), op.in, op.state);
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
