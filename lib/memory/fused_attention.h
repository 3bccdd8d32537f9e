// SPDX-License-Identifier: Apache-2.0
// The workspace of a GPU's fused attention (cuDNN) beside its operation's tensors, by formula, so
// that a run can be planned where neither the library nor the GPU is. Bytes.
//
// The formulas are upper bounds of what cuDNN 9.19 asks for its first choice on each GPU, to within
// a few bytes; the test cudnn_support holds them against the library. Fused attention reads and
// writes bf16.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera::memory {

// A backward pass whose query gradients are summed in any order (f32 sums, atomics), or one that
// gives the same bits each time.
enum class AttentionPass : std::uint8_t { forward, backward, backward_deterministic };

struct FusedAttention {
  AttentionPass pass = AttentionPass::forward;
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::int64_t q_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
};

// Parts of a workspace begin at multiples of this.
inline constexpr std::int64_t kWorkspaceAlignment = 256;

constexpr std::int64_t up_to_multiple(std::int64_t n, std::int64_t of) {
  return (n + of - 1) / of * of;
}

// f32 sums of the query gradient, [batch, q_heads, seq, head_dim].
constexpr std::int64_t query_gradient_sums_bytes(const FusedAttention& a) {
  if (a.pass != AttentionPass::backward) return 0;
  return up_to_multiple(4 * a.batch * a.q_heads * a.seq * a.head_dim, kWorkspaceAlignment);
}

// What cuDNN keeps for itself. compute_capability: 80 for 8.0.
constexpr std::int64_t fused_attention_plan_bytes(const FusedAttention& a, int compute_capability) {
  const std::int64_t rows = a.batch * a.q_heads * a.seq;
  const std::int64_t heads = a.batch * a.q_heads;
  const bool hopper = compute_capability == 90;
  const bool blackwell = compute_capability >= 100 && compute_capability < 110;
  // Key and value gradients of each head of queries, bf16, before they are summed over a group.
  const std::int64_t grouped = a.q_heads == a.kv_heads ? 0 : 4 * rows * a.head_dim;
  // A copy of the query gradient's sums, in engines without a bulk reduction to memory.
  const std::int64_t copy = 4 * heads * up_to_multiple(a.seq, 8) * a.head_dim;
  std::int64_t bytes = 0;
  switch (a.pass) {
    case AttentionPass::forward:
      break;
    case AttentionPass::backward:
      bytes = grouped + (hopper || (blackwell && a.seq > 128) ? 0 : copy);
      break;
    case AttentionPass::backward_deterministic:
      // All of the scores' gradients in bf16, but on Blackwell, which makes them twice.
      bytes = blackwell ? 2 * grouped
                        : grouped + 2 * heads * up_to_multiple(a.seq, 64) *
                                        up_to_multiple(a.seq, hopper ? 128 : 64);
      break;
  }
  return up_to_multiple(bytes, kWorkspaceAlignment) + kWorkspaceAlignment;
}

// All of it.
constexpr std::int64_t fused_attention_bytes(const FusedAttention& a, int compute_capability) {
  return query_gradient_sums_bytes(a) + fused_attention_plan_bytes(a, compute_capability);
}

}  // namespace tessera::memory
