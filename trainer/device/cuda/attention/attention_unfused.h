// SPDX-License-Identifier: Apache-2.0
// Unfused causal attention: GEMMs and softmax kernels, for what no fused kernel takes (f32, ALiBi,
// machines without cuDNN). Fused attention is checked against it. No CUDA here: whoever implements
// UnfusedAttention runs the GEMMs and kernels.
//
// Scores are written to memory one chunk at a time: some kv heads with all or some of their query
// heads, and some rows of queries, against the keys up to the chunk's last row. So only the
// triangle beside the diagonal of each chunk is computed in vain.
//
// Rounding: scores, dP and the sums of dK and dV over a group's heads and over chunks are f32. For
// bf16, P and dS are rounded to bf16 for the GEMMs that follow; each element of out and dqkv is
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

// A strided batch of `batch` GEMMs: `first`, and others whose a, b and d begin a_stride, b_stride
// and d_stride elements further each. No two write the same element. accumulate applies to each: d
// += a b.
struct BatchedGemm {
  Gemm first;
  std::int64_t batch = 1;
  std::int64_t a_stride = 0, b_stride = 0, d_stride = 0;
};

// Returns whether one plan serves both: they are equal but for the addresses, and those have the
// same offset from a multiple of 16 bytes.
bool same_plan(const BatchedGemm& x, const BatchedGemm& y);

// Runs the parts of unfused attention, in the order of the calls.
class UnfusedAttention {
 public:
  virtual ~UnfusedAttention() = default;
  virtual void run(const BatchedGemm& op) = 0;
  virtual void run(const SoftmaxForward& op) = 0;
  virtual void run(const SoftmaxBackward& op) = 0;
  virtual void run(const RowSum& op) = 0;
  virtual void run(const Cast& op) = 0;
};

// Runs attention in chunks that fill the workspace, which is aligned to 256 bytes. The same size
// gives the same calls, so the same bits.
void run_unfused_attention(const AttentionForward& op, std::span<std::byte> workspace,
                           UnfusedAttention& parts);
void run_unfused_attention(const AttentionBackward& op, std::span<std::byte> workspace,
                           UnfusedAttention& parts);

// Returns the GEMMs that run_unfused_attention will ask for, one for each plan.
std::vector<BatchedGemm> unfused_attention_gemms(const AttentionForward& op,
                                                 std::span<std::byte> workspace);
std::vector<BatchedGemm> unfused_attention_gemms(const AttentionBackward& op,
                                                 std::span<std::byte> workspace);

}  // namespace tessera::trainer::cuda
