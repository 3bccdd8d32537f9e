// SPDX-License-Identifier: Apache-2.0
// How unfused attention is tiled into chunks that fit its workspace: their sizes, their order, and
// where their matrices lie. Pure: no GPU in it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "trainer/device/cuda/kernels.h"
#include "trainer/device/ops.h"

namespace tessera::trainer::cuda {

// The scores that exist at once: kv heads, query heads of each of them (all, if there is more than
// one kv head), rows of queries.
struct AttentionChunk {
  std::int64_t kv_heads = 1;
  std::int64_t group_heads = 1;
  std::int64_t rows = 1;
  bool operator==(const AttentionChunk&) const = default;
};

// Returns the largest chunk that the workspace holds. It gives up rows first, down to 256, then
// heads, then rows down to 16. It never takes more than 512 rows, because those would add to the
// masked half that is computed in vain. Error(unsupported) under unfused_attention_least_bytes.
AttentionChunk unfused_attention_chunk(const AttentionForward& op, std::int64_t workspace_bytes);
AttentionChunk unfused_attention_chunk(const AttentionBackward& op, std::int64_t workspace_bytes);

// Scratch bytes of a chunk.
std::int64_t unfused_attention_bytes(const AttentionForward& op, const AttentionChunk& chunk);
std::int64_t unfused_attention_bytes(const AttentionBackward& op, const AttentionChunk& chunk);

// The least workspace holds 16 rows of one head and, for bf16, the f32 gradients of a kv head. The
// wanted one holds 512 rows of all heads, but at most memory::kUnfusedAttentionBytes, or the least
// if that is more.
std::int64_t unfused_attention_least_bytes(const AttentionForward& op);
std::int64_t unfused_attention_least_bytes(const AttentionBackward& op);
std::int64_t unfused_attention_workspace_bytes(const AttentionForward& op);
std::int64_t unfused_attention_workspace_bytes(const AttentionBackward& op);

// Bytes of a chunk's scratch matrices. In f32, P and dS overwrite the scores and dP.
struct ChunkBytes {
  std::int64_t scores = 0;         // f32: S, and dP
  std::int64_t probabilities = 0;  // bf16: P, and dS
  std::int64_t key_gradients = 0;  // only for bf16, in f32: dK, and dV

  std::int64_t forward() const { return scores + probabilities; }
  std::int64_t backward() const { return 2 * (scores + probabilities + key_gradients); }
};

ChunkBytes chunk_bytes(const AttentionShape& s, DType dtype, const AttentionChunk& chunk);

// Query heads of one kv head.
inline std::int64_t group_of(const AttentionShape& s) {
  return s.q_heads / s.kv_heads;
}

// Leading dimension of score rows of `keys` keys.
std::int64_t scores_ld(std::int64_t keys);

// A block of rows and columns of a tensor, as a view.
Tensor part_of(const Tensor& t, std::int64_t row, std::int64_t rows, std::int64_t col,
               std::int64_t cols);

// One chunk, and where its matrices are. Its GEMMs are batched over the chunk's kv heads; there is
// one batch for each query head of a group.
struct Chunk {
  const AttentionShape& s;
  std::int64_t batch;
  std::int64_t first_kv_head, kv_heads;
  std::int64_t first_of_group, group_heads;
  std::int64_t first_row, rows;

  std::int64_t keys() const { return first_row + rows; }
  std::int64_t ld() const { return scores_ld(keys()); }
  std::int64_t q_head(std::int64_t of_group) const {
    return first_kv_head * group_of(s) + first_of_group + of_group;
  }

  // The first matrix of a batch for query head `of_group` of each group: its columns in qkv, dqkv,
  // out or dout.
  Tensor queries(const Tensor& t, std::int64_t of_group) const {
    return part_of(t, batch * s.seq + first_row, rows, q_head(of_group) * s.head_dim, s.head_dim);
  }
  Tensor keys_of(const Tensor& qkv) const { return key_columns(qkv, s.q_heads); }
  Tensor values_of(const Tensor& qkv) const { return key_columns(qkv, s.q_heads + s.kv_heads); }
  // The first score matrix of a batch, in the workspace.
  Tensor scores(std::byte* data, DType dtype, std::int64_t of_group) const {
    return {data + of_group * rows * ld() * bytes_of(dtype), dtype, rows, keys(), ld()};
  }
  Tensor all_scores(std::byte* data, DType dtype) const {
    return {data, dtype, kv_heads * group_heads * rows, keys(), ld()};
  }
  // Strides of a batch, in elements.
  std::int64_t query_stride() const { return group_of(s) * s.head_dim; }
  std::int64_t key_stride() const { return s.head_dim; }
  std::int64_t score_stride() const { return group_heads * rows * ld(); }

  Scores of(std::byte* data) const {
    return {s,    batch,  q_head(0), kv_heads * group_heads,        first_row,
            rows, keys(), ld(),      reinterpret_cast<float*>(data)};
  }

 private:
  Tensor key_columns(const Tensor& qkv, std::int64_t heads_before) const {
    return part_of(qkv, batch * s.seq, keys(), (heads_before + first_kv_head) * s.head_dim,
                   s.head_dim);
  }
};

// Calls f for the last rows first: they see all keys, so the first GEMM of a sum over chunks writes
// all of it.
template <class F>
void for_rows(std::int64_t seq, std::int64_t rows, F&& f) {
  for (std::int64_t first = (seq - 1) / rows * rows; first >= 0; first -= rows)
    f(first, std::min(rows, seq - first));
}

template <class F>
void for_parts(std::int64_t count, std::int64_t size, F&& f) {
  for (std::int64_t first = 0; first < count; first += size)
    f(first, std::min(size, count - first));
}

// Calls f for the chunks of one sequence's kv heads from `first_kv_head` on. is_first: the first of
// the chunks that are summed into the same keys.
template <class F>
void for_chunks(const AttentionShape& s, const AttentionChunk& size, std::int64_t batch,
                std::int64_t first_kv_head, std::int64_t kv_heads, F&& f) {
  bool is_first = true;
  for_rows(s.seq, size.rows, [&](std::int64_t first_row, std::int64_t rows) {
    for_parts(group_of(s), size.group_heads, [&](std::int64_t first, std::int64_t heads) {
      f(Chunk{s, batch, first_kv_head, kv_heads, first, heads, first_row, rows}, is_first);
      is_first = false;
    });
  });
}

}  // namespace tessera::trainer::cuda
