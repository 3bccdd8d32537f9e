// SPDX-License-Identifier: Apache-2.0
#include "lib/memory/scratch.h"

#include <algorithm>

#include "lib/base/numbers.h"
#include "lib/memory/fused_attention.h"
#include "lib/memory/parts.h"
#include "lib/schedule/units.h"

namespace tessera::memory {

namespace {

// Tiles of the CPU's attention, as trainer/device/cpu/kernels.h has them.
constexpr std::int64_t kTile = 64;
constexpr std::int64_t kStrip = 16;

// Scratch of a thread: tiles of queries, keys, values and scores, and the key and value gradients
// of a whole head (trainer/device/cpu/attention_backward.cpp).
std::int64_t cpu_attention_bytes(const Config& config) {
  const std::int64_t head = round_up(config.shape.head_dim, kStrip);
  const std::int64_t elements =
      kTile * (7 * head + 2 * kTile + 3) + 2 * round_up(config.seq_len, kTile) * head;
  return elements * bytes_of(DType::f32);
}

// On whatever GPU: the most that fused attention takes on any, and in any case what does for
// attention by matrix products (trainer/device/cuda/attention/attention_chunk.h), which is in f32,
// with ALiBi and where no fused engine is offered, beside the products' own: it is cut to fit, but
// for rows of scores and the f32 gradients of one head of keys.
std::int64_t gpu_workspace_bytes(const Config& config) {
  const model::Shape& shape = config.shape;
  constexpr std::int64_t kRows = 16;
  const std::int64_t least =
      kRows * config.seq_len * 4 * bytes_of(DType::f32) +
      2 * config.seq_len * round_up(shape.head_dim, 64) * bytes_of(DType::f32);
  std::int64_t most =
      kGemmWorkspaceBytes + round_up(std::max(kUnfusedAttentionBytes, least), kWorkspaceAlignment);
  if (is_f32(config.precision) || shape.positions == model::Positions::alibi) return most;
  FusedAttention attention{.batch = config.microbatch,
                           .seq = config.seq_len,
                           .q_heads = shape.n_heads,
                           .kv_heads = shape.n_kv_heads,
                           .head_dim = shape.head_dim};
  constexpr int kCapabilities[] = {80, 90, 100, 120};
  for (const AttentionPass pass :
       {AttentionPass::forward, config.target.deterministic ? AttentionPass::backward_deterministic
                                                            : AttentionPass::backward}) {
    attention.pass = pass;
    for (const int capability : kCapabilities)
      most = std::max(most, fused_attention_bytes(attention, capability));
  }
  return most;
}

// Panels of A, B and D that are converted to f32 (trainer/device/cpu/gemm.cpp).
std::int64_t cpu_gemm_bytes(const Config& config) {
  if (compute_dtype(config.precision) == DType::f32) return 0;
  const model::Shape& shape = config.shape;
  const std::int64_t longest =
      std::max({config.microbatch * config.seq_len, shape.d_model, model::qkv_width(shape),
                model::attention_width(shape), model::mlp_in_width(shape), shape.ffn,
                model::padded_vocab(shape.vocab)});
  const std::int64_t m = std::min<std::int64_t>(longest, 1024);
  const std::int64_t n = std::min<std::int64_t>(longest, 2048);
  const std::int64_t k = std::min<std::int64_t>(longest, 4096);
  return (m * k + n * k + m * n) * bytes_of(DType::f32);
}

}  // namespace

Scratch scratch(const Config& config) {
  const model::Shape& shape = config.shape;
  const std::int64_t rows = config.microbatch * config.seq_len;
  Scratch result;
  if (config.target.is_gpu) {
    result.workspace = gpu_workspace_bytes(config);
  } else {
    result.workspace =
        std::max(cpu_gemm_bytes(config), config.target.threads * cpu_attention_bytes(config));
  }
  std::int64_t partials = norm_partials(rows, shape.d_model);
  for (const std::int64_t cols :
       {model::qkv_width(shape), shape.d_model, model::mlp_in_width(shape)})
    partials = std::max(partials, bias_grad_partials(rows, cols));
  result.partials = partials * bytes_of(DType::f32);

  const std::int64_t ranks = shard_ranks(config);
  std::int64_t squares = 0;
  for (const Unit& unit : units(config)) {
    const std::int64_t elements = unit.trained.elements;
    squares += squared_norm_partials(ranks == 1 ? elements : shard_elements(elements, ranks));
  }
  result.norm_partials = squares * bytes_of(DType::f64);
  return result;
}

}  // namespace tessera::memory
