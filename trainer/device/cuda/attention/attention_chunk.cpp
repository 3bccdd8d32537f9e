// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/attention/attention_chunk.h"

#include <fmt/format.h>

#include "lib/base/error.h"
#include "lib/base/numbers.h"
#include "lib/memory/scratch.h"

namespace tessera::trainer::cuda {
namespace {

constexpr std::int64_t kAlignment = 256;     // of each matrix in the workspace
constexpr std::int64_t kScoresMultiple = 8;  // leading dimensions of scores are multiples of it
constexpr std::int64_t kMostRows = 512;
constexpr std::int64_t kEnoughRows = 256;
constexpr std::int64_t kLeastRows = 16;

AttentionChunk least_chunk(const AttentionShape& s) {
  return {1, 1, std::min(s.seq, kLeastRows)};
}

// Returns the largest n from 1 to `most` for which fits(n), balanced so that the last part is not
// small. 0 if none fits.
template <class Fits>
std::int64_t largest_share(std::int64_t most, Fits fits) {
  for (std::int64_t parts = 1; parts <= most; ++parts) {
    const std::int64_t share = ceil_div(most, parts);
    if (fits(share)) return share;
  }
  return 0;
}

template <class Attention>
AttentionChunk chunk_of(const Attention& op, std::int64_t bytes) {
  const AttentionShape& s = op.shape;
  const std::int64_t group = group_of(s);
  const auto fits = [&](const AttentionChunk& chunk) {
    return unfused_attention_bytes(op, chunk) <= bytes;
  };
  AttentionChunk chunk{s.kv_heads, group, std::min(s.seq, kMostRows)};
  if (fits(chunk)) return chunk;
  chunk.rows = std::min(s.seq, kEnoughRows);
  chunk.kv_heads =
      largest_share(s.kv_heads, [&](std::int64_t n) { return fits({n, group, chunk.rows}); });
  if (chunk.kv_heads > 0) return chunk;
  chunk.kv_heads = 1;
  chunk.group_heads =
      largest_share(group, [&](std::int64_t n) { return fits({1, n, chunk.rows}); });
  if (chunk.group_heads > 0) return chunk;
  chunk.group_heads = 1;
  for (std::int64_t rows = kEnoughRows; rows >= kLeastRows; rows -= kLeastRows) {
    chunk.rows = std::min(s.seq, rows);
    if (fits(chunk)) return chunk;
  }
  throw Error(ExitCode::unsupported, op_name(op),
              fmt::format("needs {} bytes of workspace at least, {} were given",
                          unfused_attention_least_bytes(op), bytes));
}

template <class Attention>
std::int64_t wanted_bytes(const Attention& op) {
  const AttentionShape& s = op.shape;
  const std::int64_t all = unfused_attention_bytes(
      op, AttentionChunk{s.kv_heads, group_of(s), std::min(s.seq, kMostRows)});
  return std::max(unfused_attention_least_bytes(op), std::min(all, memory::kUnfusedAttentionBytes));
}

}  // namespace

std::int64_t scores_ld(std::int64_t keys) {
  return round_up(keys, kScoresMultiple);
}

ChunkBytes chunk_bytes(const AttentionShape& s, DType dtype, const AttentionChunk& chunk) {
  const auto aligned = [](std::int64_t elements, DType of) {
    return round_up(elements * bytes_of(of), kAlignment);
  };
  const std::int64_t cells = chunk.kv_heads * chunk.group_heads * chunk.rows * scores_ld(s.seq);
  ChunkBytes result;
  result.scores = aligned(cells, DType::f32);
  if (dtype != DType::f32) {
    result.probabilities = aligned(cells, dtype);
    result.key_gradients = aligned(s.seq * chunk.kv_heads * s.head_dim, DType::f32);
  }
  return result;
}

Tensor part_of(const Tensor& t, std::int64_t row, std::int64_t rows, std::int64_t col,
               std::int64_t cols) {
  return {static_cast<std::byte*>(t.data) + (row * t.ld + col) * bytes_of(t.dtype), t.dtype, rows,
          cols, t.ld};
}

std::int64_t unfused_attention_bytes(const AttentionForward& op, const AttentionChunk& chunk) {
  return chunk_bytes(op.shape, op.qkv.dtype, chunk).forward();
}
std::int64_t unfused_attention_bytes(const AttentionBackward& op, const AttentionChunk& chunk) {
  return chunk_bytes(op.shape, op.qkv.dtype, chunk).backward();
}

AttentionChunk unfused_attention_chunk(const AttentionForward& op, std::int64_t workspace_bytes) {
  return chunk_of(op, workspace_bytes);
}
AttentionChunk unfused_attention_chunk(const AttentionBackward& op, std::int64_t workspace_bytes) {
  return chunk_of(op, workspace_bytes);
}

std::int64_t unfused_attention_least_bytes(const AttentionForward& op) {
  return unfused_attention_bytes(op, least_chunk(op.shape));
}
std::int64_t unfused_attention_least_bytes(const AttentionBackward& op) {
  return unfused_attention_bytes(op, least_chunk(op.shape));
}
std::int64_t unfused_attention_workspace_bytes(const AttentionForward& op) {
  return wanted_bytes(op);
}
std::int64_t unfused_attention_workspace_bytes(const AttentionBackward& op) {
  return wanted_bytes(op);
}

}  // namespace tessera::trainer::cuda
