// Our own kernels: all of an operation that no library does, and what attention without cuDNN needs
// beside matrix products. Their sources (kernel/*.cu) are compiled twice (simt.h): the same
// functions run on a GPU (namespace gpu) or emulated on the CPU (namespace emulated).
//
// Each function checks nothing (trainer/device/check.h has) and launches on one stream without
// waiting. All take f32 and bf16, sums as ops.h and docs/precision.md say; where every row begins
// at a multiple of 16 bytes and is a multiple of 8 elements long they read and write by 16 bytes,
// else by elements. No atomics: the same bits in every run and for any number of multiprocessors.
//
// Nothing is thrown for what only the device sees. The loader makes no token outside of the table
// and no target from `vocab` on; were there one, its row of Embed's y or its row_loss would be NaN,
// so that the loss is, and the step changes nothing. EmbedBackward believes order and starts.
#pragma once

#include "trainer/device/cuda/launch.h"
#include "trainer/device/ops.h"

namespace tessera::trainer::cuda {

// Attention from whole rows of scores, a part of the queries and heads at a time
// (attention_unfused.h). Tensors are those of the operation; `heads` heads of queries from
// `first_head` on, of sequence `batch`, and `rows` queries from `first_row` on, against keys 0 to
// `keys` - 1 of their sequence (keys = first_row + rows). Matrices of scores are [heads * rows,
// keys], at multiples of 16 bytes, with one leading dimension `ld`, which is a multiple of 8; row r
// of a head ends at key first_row + r: what lies behind is not read, and written as 0 up to `ld`.
struct Scores {
  AttentionShape shape;
  std::int64_t batch = 0;
  std::int64_t first_head = 0, heads = 0;
  std::int64_t first_row = 0, rows = 0;
  std::int64_t keys = 0;
  std::int64_t ld = 0;
  float* scores = nullptr;  // Q K^T, not scaled
};

// scores become the probabilities in `probabilities` (dtype of out; may be `scores` itself for
// f32); lse [batch * q_heads, seq] gets the rows' log-sum-exp. ALiBi as the shape says. A NaN among
// the scores of a row makes all of it NaN.
struct SoftmaxForward {
  Scores at;
  Tensor probabilities;
  Tensor lse;
};

// From scores, lse, dP (f32) and row_sum: P into `probabilities` and dS = P (dP - row_sum) scale
// into `dscores`, both in the dtype of out; for f32 they may be `scores` and dP themselves.
struct SoftmaxBackward {
  Scores at;
  const float* dprobabilities = nullptr;
  Tensor probabilities, dscores;
  Tensor lse, row_sum;
};

// row_sum [batch * q_heads, seq] = sum over head_dim of dout * out, in f32.
struct RowSum {
  AttentionShape shape;
  Tensor dout, out, row_sum;
};

#define TESSERA_OWN_KERNELS(which)                          \
  namespace which {                                         \
  void run(const BiasGrad& op, const Launch& where);        \
  void run(const Rope& op, const Launch& where);            \
  void run(const NormForward& op, const Launch& where);     \
  void run(const NormBackward& op, const Launch& where);    \
  void run(const ActForward& op, const Launch& where);      \
  void run(const ActBackward& op, const Launch& where);     \
  void run(const Embed& op, const Launch& where);           \
  void run(const EmbedBackward& op, const Launch& where);   \
  void run(const CrossEntropy& op, const Launch& where);    \
  void run(const SumLoss& op, const Launch& where);         \
  void run(const Cast& op, const Launch& where);            \
  void run(const SquaredNorm& op, const Launch& where);     \
  void run(const FinishNorm& op, const Launch& where);      \
  void run(const AdamW& op, const Launch& where);           \
  void run(const Init& op, const Launch& where);            \
  void run(const SoftmaxForward& op, const Launch& where);  \
  void run(const SoftmaxBackward& op, const Launch& where); \
  void run(const RowSum& op, const Launch& where);          \
  }

TESSERA_OWN_KERNELS(gpu)
TESSERA_OWN_KERNELS(emulated)

#undef TESSERA_OWN_KERNELS

}  // namespace tessera::trainer::cuda
