// SPDX-License-Identifier: Apache-2.0
// Causal attention as the graph of elementary operations that cuDNN 9 recognises and runs fused,
// without scores in memory. Graphs are pure values, made without cuDNN and without a GPU.
//
// Tensors are those of AttentionForward and AttentionBackward (trainer/device/ops.h) in bf16: the
// packed qkv is read in place by strides, and dqkv is written so. Unlike the CPU's attention, P and
// dS are rounded to bf16 for the products that they enter, and the key and value gradients of each
// query head are rounded before they are summed over a group.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "lib/memory/fused_attention.h"
#include "trainer/device/cuda/attention/tensor_graph.h"
#include "trainer/device/ops.h"

namespace tessera::trainer::cuda {

using memory::AttentionPass;

// Everything that a graph depends on: operations with equal keys share a graph.
struct AttentionGraphKey {
  AttentionPass pass = AttentionPass::forward;
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::int64_t q_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  DType dtype = DType::bf16;  // of activations
  bool alibi = false;
  // Leading dimensions; the last three of a forward pass are 0.
  std::int64_t ld_qkv = 0;
  std::int64_t ld_out = 0;
  std::int64_t ld_lse = 0;
  std::int64_t ld_dout = 0;
  std::int64_t ld_dqkv = 0;
  std::int64_t ld_row_sum = 0;
  auto operator<=>(const AttentionGraphKey&) const = default;
};

AttentionGraphKey key_of(const AttentionForward& op);
AttentionGraphKey key_of(const AttentionBackward& op, bool deterministic);

// "backward b2 s2048 h32/8 d128 bf16", and those leading dimensions that are not the least ones.
std::string to_text(const AttentionGraphKey& key);

// Returns, as a sentence, why cuDNN is never asked for such a graph, whatever the GPU. Nothing: it
// may be asked, and may refuse.
std::optional<std::string> why_unsupported(const AttentionGraphKey& key);

memory::FusedAttention size_of(const AttentionGraphKey& key);

// Ids of the tensors in memory and of the scalars that are passed by value.
namespace attention_id {
inline constexpr std::int64_t q = 1, k = 2, v = 3, out = 4, lse = 5, dout = 6, dq = 7, dk = 8,
                              dv = 9;
inline constexpr std::int64_t row_sum = 10;
inline constexpr std::int64_t dq_sums = 11;  // f32, dense; only in AttentionPass::backward
inline constexpr std::int64_t scale = 12, masked = 13, one = 14;
}  // namespace attention_id

// Returns the graph of a key for which why_unsupported says nothing. dtype and alibi do not change
// it.
TensorGraph attention_graph(const AttentionGraphKey& key);

// The scalars passed by value: they must stay where they are while the graph may run.
struct AttentionScalars {
  float scale = 1;
  float masked = -std::numeric_limits<float>::infinity();
  float one = 1;
};

// Binds the operation's tensors to the graph's and sets scalars.scale. dq_sums: memory of
// query_gradient_sums_bytes; null for a deterministic pass, which has none.
std::vector<Binding> bindings(const AttentionForward& op, AttentionScalars& scalars);
std::vector<Binding> bindings(const AttentionBackward& op, void* dq_sums,
                              AttentionScalars& scalars);

}  // namespace tessera::trainer::cuda
