// Causal attention of plain matrix products and softmax kernels, for what no fused kernel takes:
// f32, ALiBi, machines without cuDNN. It is also what fused ones are checked against. No CUDA: the
// products and kernels are run by whoever implements PlainAttention.
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

#include "trainer/device/cuda/kernels.h"
#include "trainer/device/ops.h"

namespace tessera::trainer::cuda {

// `batch` products of one kind: `first`, and others whose a, b and d begin a_step, b_step and
// d_step elements further each. No two write the same element. accumulate is of each: d += a b.
struct BatchedGemm {
  Gemm first;
  std::int64_t batch = 1;
  std::int64_t a_step = 0, b_step = 0, d_step = 0;
};

// Whether one plan does for both: equal in all but the addresses, and these are multiples of 16
// bytes in both or the same distance from one.
bool same_plan(const BatchedGemm& x, const BatchedGemm& y);

// What attention is made of, run in the order of the calls.
class PlainAttention {
 public:
  virtual ~PlainAttention() = default;
  virtual void run(const BatchedGemm& op) = 0;
  virtual void run(const SoftmaxForward& op) = 0;
  virtual void run(const SoftmaxBackward& op) = 0;
  virtual void run(const RowSum& op) = 0;
  virtual void run(const Cast& op) = 0;
};

// What exists at once: heads of keys, heads of queries of each of them (all, if there is more than
// one head of keys), rows of queries.
struct AttentionChunk {
  std::int64_t kv_heads = 1;
  std::int64_t group_heads = 1;
  std::int64_t rows = 1;
  bool operator==(const AttentionChunk&) const = default;
};

// The chunk that a workspace of this many bytes has room for. Rows are given up first, down to 256,
// then heads, then rows down to 16; more than 512 are never taken, as they would add to what is
// computed in vain. Error(unsupported) under plain_attention_least_bytes.
AttentionChunk plain_attention_chunk(const AttentionForward& op, std::int64_t workspace_bytes);
AttentionChunk plain_attention_chunk(const AttentionBackward& op, std::int64_t workspace_bytes);

// Scratch of a chunk.
std::int64_t plain_attention_bytes(const AttentionForward& op, const AttentionChunk& chunk);
std::int64_t plain_attention_bytes(const AttentionBackward& op, const AttentionChunk& chunk);

// Least: of 16 rows of one head, and for bf16 the f32 gradients of a head of keys. Wanted: of 512
// rows of all heads, but 64 MiB where the least is no more than that.
inline constexpr std::int64_t kPlainAttentionBytes = std::int64_t{64} << 20;
std::int64_t plain_attention_least_bytes(const AttentionForward& op);
std::int64_t plain_attention_least_bytes(const AttentionBackward& op);
std::int64_t plain_attention_workspace_bytes(const AttentionForward& op);
std::int64_t plain_attention_workspace_bytes(const AttentionBackward& op);

// workspace: 256-byte aligned, as large as the chunks are to fill. The same size gives the same
// calls, so the same bits.
void run_plain_attention(const AttentionForward& op, std::span<std::byte> workspace,
                         PlainAttention& parts);
void run_plain_attention(const AttentionBackward& op, std::span<std::byte> workspace,
                         PlainAttention& parts);

// The products that run_plain_attention will ask for, one of each plan.
std::vector<BatchedGemm> plain_attention_gemms(const AttentionForward& op,
                                               std::span<std::byte> workspace);
std::vector<BatchedGemm> plain_attention_gemms(const AttentionBackward& op,
                                               std::span<std::byte> workspace);

}  // namespace tessera::trainer::cuda
