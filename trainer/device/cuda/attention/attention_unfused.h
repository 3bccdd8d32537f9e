// Causal attention of plain matrix products and softmax kernels, for what no fused kernel takes:
// f32, ALiBi, machines without cuDNN. It is also what fused ones are checked against. No CUDA: the
// products and kernels are run by whoever implements UnfusedAttention.
//
// Scores are written out, a chunk at a time: some heads of keys with all or some of their heads of
// queries, and some rows of queries, against the keys up to the chunk's last row. So what is
// computed in vain is the triangle beside the diagonal of each chunk.
//
// Rounding: scores, dP and the sums of dK and dV over a group's heads and over chunks are f32. For
// bf16, P and dS are rounded to bf16 for the products that follow; each element of out and dqkv is
// rounded once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trainer/device/cuda/attention/attention_chunk.h"
#include "trainer/device/cuda/kernels.h"
#include "trainer/device/ops.h"

namespace tessera::trainer::cuda {

// `batch` products of one kind: `first`, and others whose a, b and d begin a_stride, b_stride and
// d_stride elements further each. No two write the same element. accumulate is of each: d += a b.
struct BatchedGemm {
  Gemm first;
  std::int64_t batch = 1;
  std::int64_t a_stride = 0, b_stride = 0, d_stride = 0;
};

// Whether one plan does for both: equal in all but the addresses, and these are multiples of 16
// bytes in both or the same distance from one.
bool same_plan(const BatchedGemm& x, const BatchedGemm& y);

// What attention is made of, run in the order of the calls.
class UnfusedAttention {
 public:
  virtual ~UnfusedAttention() = default;
  virtual void run(const BatchedGemm& op) = 0;
  virtual void run(const SoftmaxForward& op) = 0;
  virtual void run(const SoftmaxBackward& op) = 0;
  virtual void run(const RowSum& op) = 0;
  virtual void run(const Cast& op) = 0;
};

// workspace: 256-byte aligned, as large as the chunks are to fill. The same size gives the same
// calls, so the same bits.
void run_unfused_attention(const AttentionForward& op, std::span<std::byte> workspace,
                           UnfusedAttention& parts);
void run_unfused_attention(const AttentionBackward& op, std::span<std::byte> workspace,
                           UnfusedAttention& parts);

// The products that run_unfused_attention will ask for, one of each plan.
std::vector<BatchedGemm> unfused_attention_gemms(const AttentionForward& op,
                                                 std::span<std::byte> workspace);
std::vector<BatchedGemm> unfused_attention_gemms(const AttentionBackward& op,
                                                 std::span<std::byte> workspace);

}  // namespace tessera::trainer::cuda
