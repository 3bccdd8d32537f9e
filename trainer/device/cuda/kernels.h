// SPDX-License-Identifier: Apache-2.0
// Our own kernels: every operation that no library does, and the softmax of unfused attention.
// Their sources (kernel/*.cu) are compiled twice (simt.h): the same functions run on a GPU
// (namespace gpu) or emulated on the CPU (namespace emulated).
//
// The functions check nothing (trainer/device/check.h has) and launch on one stream without
// waiting. All take f32 and bf16; ops.h and docs/precision.md say in which precision they sum.
// Loads and stores are vectorized, 16 bytes each, if every row is aligned to 16 bytes and is a
// multiple of 8 elements long; otherwise they go element by element. There are no atomics: the bits
// are the same in every run and for any number of multiprocessors.
//
// Faults that only the device sees throw nothing. The loader makes no token outside of the table
// and no target from `vocab` on; if there were one, its row of Embed's y or its row_loss would be
// NaN, so the loss would be NaN and the step would change nothing. EmbedBackward trusts order and
// starts.
#pragma once

#include "trainer/device/cuda/launch.h"
#include "trainer/device/ops.h"

namespace tessera::trainer::cuda {

// A tile of unfused attention's scores (attention_unfused.h): `heads` query heads from `first_head`
// on, of sequence `batch`, and `rows` queries from `first_row` on, against keys 0 to `keys` - 1 of
// their sequence (keys = first_row + rows). Tensors are those of the operation. Score matrices are
// [heads * rows, keys], aligned to 16 bytes, with a leading dimension `ld` that is a multiple of 8.
// Row r of a head ends at key first_row + r: what lies behind is not read, and is written as 0 up
// to `ld`.
struct Scores {
  AttentionShape shape;
  std::int64_t batch = 0;
  std::int64_t first_head = 0, heads = 0;
  std::int64_t first_row = 0, rows = 0;
  std::int64_t keys = 0;
  std::int64_t ld = 0;
  float* scores = nullptr;  // Q K^T, not scaled
};

// Turns scores into `probabilities` (dtype of out; for f32 this may be `scores` itself) and writes
// the rows' log-sum-exp to lse [batch * q_heads, seq]. ALiBi as the shape says. A NaN among the
// scores of a row makes the whole row NaN.
struct SoftmaxForward {
  Scores at;
  Tensor probabilities;
  Tensor lse;
};

// Recomputes P from scores and lse into `probabilities`, and writes dS = P (dP - row_sum) scale
// into `dscores`, both in the dtype of out. dP is f32. For f32 the outputs may be `scores` and dP
// themselves.
struct SoftmaxBackward {
  Scores at;
  const float* dprobabilities = nullptr;
  Tensor probabilities, dscores;
  Tensor lse, row_sum;
};

// Computes row_sum [batch * q_heads, seq] = sum over head_dim of dout * out, in f32.
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
