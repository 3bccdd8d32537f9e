// SPDX-License-Identifier: Apache-2.0
// Causal attention, the forward pass, by tiles (attention_tiles.h) with an online softmax, as in
// FlashAttention (Dao et al. 2022).
//
// Rounding: scores and P stay in f32 (f64), also for bf16. Rounded once, when stored: out, lse.
// Sums run over keys in ascending order, so the bits do not depend on the number of threads.
#include <cmath>

#include "trainer/device/cpu/attention_tiles.h"

namespace tessera::trainer::cpu {
namespace {

// Elements of a thread's scratch: Q^T, K, V, scores, out and three vectors.
std::int64_t forward_scratch(const AttentionShape& s) {
  return kTile * (4 * padded_head(s) + kTile + 3);
}

template <class S>
void forward_tile(const AttentionForward& op, const Context& context, std::int64_t batch,
                  std::int64_t q_head, std::int64_t tile) {
  using C = Compute<S>;
  const AttentionShape& s = op.shape;
  const auto& io = storage<S>(context.kernels);
  const auto& math = compute<C>(context.kernels);
  const std::int64_t head = padded_head(s);
  Scratch<C> scratch(context, forward_scratch(s));
  C* q = scratch.take(head * kTile);  // transposed
  C* k = scratch.take(kTile * head);
  C* v = scratch.take(kTile * head);
  C* out = scratch.take(kTile * head);
  C* scores = scratch.take(kTile * kTile);
  C* maximum = scratch.take(kTile);
  C* sum = scratch.take(kTile);
  C* rescale = scratch.take(kTile);

  const Columns column = columns(s, q_head);
  const std::int64_t first = tile * kTile;
  const std::int64_t queries = std::min(kTile, s.seq - first);
  io.pack_transposed(row<S>(op.qkv, batch * s.seq + first) + column.q, op.qkv.ld, queries,
                     s.head_dim, q, kTile);
  zero(out, kTile * head);
  std::fill_n(maximum, kTile, -std::numeric_limits<C>::infinity());
  zero(sum, kTile);
  for (std::int64_t other = 0; other <= tile; ++other) {
    const bool diagonal = other == tile;
    const std::int64_t keys = std::min(kTile, s.seq - other * kTile);
    const S* rows = row<S>(op.qkv, batch * s.seq + other * kTile);
    const Rows<C> key_rows =
        rows_as_computed(io, rows + column.k, op.qkv.ld, keys, s.head_dim, k, head);
    pack(io, rows + column.v, op.qkv.ld, keys, s.head_dim, v, head);
    score_tile(math, diagonal, keys, s.head_dim, key_rows.data, key_rows.ld, q, scores,
               -std::numeric_limits<C>::infinity());
    add_alibi(s, q_head, keys, other * kTile - first, scores);
    math.softmax_step(scores, keys, static_cast<C>(s.scale), maximum, sum, rescale);
    if (other > 0) {
      for (std::int64_t i = 0; i < queries; ++i) math.multiply(out + i * head, rescale[i], head);
    }
    add_over_keys(math, diagonal, queries, keys, head, scores, v, out);
  }
  C* lse = row<C>(op.lse, batch * s.q_heads + q_head) + first;
  for (std::int64_t i = 0; i < queries; ++i) {
    math.multiply(out + i * head, 1 / sum[i], s.head_dim);
    io.store(out + i * head, nullptr, row<S>(op.out, batch * s.seq + first + i) + column.q,
             s.head_dim, false);
    lse[i] =
        static_cast<C>(static_cast<double>(maximum[i]) + std::log(static_cast<double>(sum[i])));
  }
}

}  // namespace

std::int64_t attention_workspace_bytes(const AttentionForward& op, int threads) {
  return threads * forward_scratch(op.shape) * compute_bytes(op.qkv.dtype);
}

// Tiles go to threads in turn, ascending in even heads and descending in odd ones, so that each
// thread gets about the same number of keys.
void run(const AttentionForward& op, const Context& context) {
  const AttentionShape& s = op.shape;
  const std::int64_t per_batch = s.q_heads * tiles(s);
  with_storage(op.qkv.dtype, [&]<class S>() {
#pragma omp parallel for schedule(static, 1)
    for (std::int64_t i = 0; i < s.batch * per_batch; ++i) {
      const std::int64_t q_head = i % per_batch / tiles(s);
      const std::int64_t turn = i % tiles(s);
      forward_tile<S>(op, context, i / per_batch, q_head,
                      q_head % 2 == 0 ? turn : tiles(s) - 1 - turn);
    }
  });
}

}  // namespace tessera::trainer::cpu
