// Causal attention by tiles of kTile queries and keys; scores never exist as a whole, and what lies
// above the diagonal is not computed but for the triangles of the diagonal's kStrip-wide strips.
//
// Rounding: scores, P, dP and dS stay in f32 (f64), also for bf16. Rounded once, when stored: out,
// lse, dqkv. Sums run over keys (forward, dQ) or queries (dK, dV) in ascending order, so the bits
// do not depend on the number of threads.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "trainer/device/cpu/operations.h"
#include "trainer/device/cpu/typed.h"

namespace tessera::trainer::cpu {
namespace {

// head_dim filled up to what the kernels take as columns.
std::int64_t padded_head(const AttentionShape& s) {
  return (s.head_dim + kStrip - 1) / kStrip * kStrip;
}

std::int64_t tiles(const AttentionShape& s) {
  return (s.seq + kTile - 1) / kTile;
}

// Elements of a thread's scratch. Forward: Q^T, K, V, scores, out and three vectors. Backward: Q,
// dO and their transposes, K, V, dQ, two score tiles, two vectors, dK and dV of a whole head.
std::int64_t forward_scratch(const AttentionShape& s) {
  return kTile * (4 * padded_head(s) + kTile + 3);
}
std::int64_t backward_scratch(const AttentionShape& s) {
  return kTile * (7 * padded_head(s) + 2 * kTile + 2) + 2 * tiles(s) * kTile * padded_head(s);
}

// Hands out a thread's scratch piece by piece.
template <class C>
class Scratch {
 public:
  Scratch(const Context& context, std::int64_t per_thread)
      : next_(reinterpret_cast<C*>(context.workspace.data()) + omp_get_thread_num() * per_thread) {}
  C* take(std::int64_t count) {
    C* result = next_;
    next_ += count;
    return result;
  }

 private:
  C* next_;
};

template <class C>
void zero(C* x, std::int64_t n) {
  std::fill(x, x + n, C(0));
}

// Rows of a packed tensor as C, columns filled up with zeros.
template <class S>
void pack(const StorageKernels<S>& kernels, const S* src, std::int64_t ld, std::int64_t rows,
          std::int64_t cols, Compute<S>* dst, std::int64_t ld_dst) {
  for (std::int64_t r = 0; r < rows; ++r) {
    kernels.load(src + r * ld, dst + r * ld_dst, cols);
    zero(dst + r * ld_dst + cols, ld_dst - cols);
  }
}

// Rows of a tensor as C and where they are: in place if they are C already, else packed into
// `space`.
template <class C>
struct Rows {
  const C* data;
  std::int64_t ld;
};
template <class S>
Rows<Compute<S>> rows_as_computed(const StorageKernels<S>& kernels, const S* src, std::int64_t ld,
                                  std::int64_t rows, std::int64_t cols, Compute<S>* space,
                                  std::int64_t ld_space) {
  if constexpr (std::is_same_v<S, Compute<S>>) {
    return {src, ld};
  } else {
    pack(kernels, src, ld, rows, cols, space, ld_space);
    return {space, ld_space};
  }
}

// [keys, queries] (+)= a [keys, depth] b [depth, kTile]; on the diagonal only queries from each
// strip's first key on, and scores of later keys become `masked`.
template <class C>
void score_tile(const ComputeKernels<C>& kernels, bool diagonal, std::int64_t keys,
                std::int64_t depth, const C* a, std::int64_t lda, const C* b, C* scores, C masked) {
  if (!diagonal) {
    kernels.gemm(keys, kTile, depth, a, lda, 1, b, kTile, scores, kTile, false);
    return;
  }
  for (std::int64_t key = 0; key < keys; key += kStrip) {
    kernels.gemm(std::min(kStrip, keys - key), kTile - key, depth, a + key * lda, lda, 1, b + key,
                 kTile, scores + key * kTile + key, kTile, false);
  }
  for (std::int64_t key = 0; key < keys; ++key) {
    std::fill_n(scores + key * kTile, key, masked);
  }
}

// out [queries, head] += p^T v, p [keys, kTile]; on the diagonal each strip of queries stops at its
// last key.
template <class C>
void add_over_keys(const ComputeKernels<C>& kernels, bool diagonal, std::int64_t queries,
                   std::int64_t keys, std::int64_t head, const C* p, const C* v, C* out) {
  if (!diagonal) {
    kernels.gemm(queries, head, keys, p, 1, kTile, v, head, out, head, true);
    return;
  }
  for (std::int64_t query = 0; query < queries; query += kStrip) {
    kernels.gemm(std::min(kStrip, queries - query), head, std::min(keys, query + kStrip), p + query,
                 1, kTile, v, head, out + query * head, head, true);
  }
}

// out [keys, head] += p x, x [queries, head]; on the diagonal each strip of keys starts at its
// first query.
template <class C>
void add_over_queries(const ComputeKernels<C>& kernels, bool diagonal, std::int64_t keys,
                      std::int64_t queries, std::int64_t head, const C* p, const C* x, C* out) {
  if (!diagonal) {
    kernels.gemm(keys, head, queries, p, kTile, 1, x, head, out, head, true);
    return;
  }
  for (std::int64_t key = 0; key < keys; key += kStrip) {
    kernels.gemm(std::min(kStrip, keys - key), head, queries - key, p + key * kTile + key, kTile, 1,
                 x + key * head, head, out + key * head, head, true);
  }
}

// What ALiBi adds to scores that are still to be multiplied by the scale: [keys, kTile], key 0 of
// the tile `distance` positions after query 0.
template <class C>
void add_alibi(const AttentionShape& s, std::int64_t q_head, std::int64_t keys,
               std::int64_t distance, C* scores) {
  if (s.alibi_bias_max == 0) return;
  const C slope = static_cast<C>(alibi_slope(q_head, s.q_heads, s.alibi_bias_max) / s.scale);
  for (std::int64_t key = 0; key < keys; ++key) {
    for (std::int64_t query = 0; query < kTile; ++query)
      scores[key * kTile + query] += slope * static_cast<C>(distance + key - query);
  }
}

// Where the heads lie in a row of qkv.
struct Columns {
  std::int64_t q, k, v;
};
Columns columns(const AttentionShape& s, std::int64_t q_head) {
  const std::int64_t kv_head = q_head / (s.q_heads / s.kv_heads);
  return {q_head * s.head_dim, (s.q_heads + kv_head) * s.head_dim,
          (s.q_heads + s.kv_heads + kv_head) * s.head_dim};
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

// All gradients of one head of keys and values: its queries' tiles in order, for each of its heads
// of queries.
template <class S>
void backward_head(const AttentionBackward& op, const Context& context, std::int64_t batch,
                   std::int64_t kv_head) {
  using C = Compute<S>;
  const AttentionShape& s = op.shape;
  const auto& io = storage<S>(context.kernels);
  const auto& math = compute<C>(context.kernels);
  const std::int64_t head = padded_head(s);
  const std::int64_t group = s.q_heads / s.kv_heads;
  Scratch<C> scratch(context, backward_scratch(s));
  C* q = scratch.take(kTile * head);
  C* q_transposed = scratch.take(head * kTile);
  C* dout = scratch.take(kTile * head);
  C* dout_transposed = scratch.take(head * kTile);
  C* k = scratch.take(kTile * head);
  C* v = scratch.take(kTile * head);
  C* dq = scratch.take(kTile * head);
  C* p = scratch.take(kTile * kTile);
  C* ds = scratch.take(kTile * kTile);
  C* lse = scratch.take(kTile);
  C* row_sum = scratch.take(kTile);
  const std::int64_t whole = tiles(s) * kTile * head;
  C* dk = scratch.take(whole);
  C* dv = scratch.take(whole);
  zero(dk, whole);
  zero(dv, whole);
  zero(lse, kTile);
  zero(row_sum, kTile);

  for (std::int64_t q_head = kv_head * group; q_head < (kv_head + 1) * group; ++q_head) {
    const Columns column = columns(s, q_head);
    for (std::int64_t tile = 0; tile < tiles(s); ++tile) {
      const std::int64_t first = tile * kTile;
      const std::int64_t queries = std::min(kTile, s.seq - first);
      const std::int64_t first_row = batch * s.seq + first;
      const S* q_rows = row<S>(op.qkv, first_row) + column.q;
      const S* dout_rows = row<S>(op.dout, first_row) + column.q;
      pack(io, q_rows, op.qkv.ld, queries, s.head_dim, q, head);
      pack(io, dout_rows, op.dout.ld, queries, s.head_dim, dout, head);
      io.pack_transposed(q_rows, op.qkv.ld, queries, s.head_dim, q_transposed, kTile);
      io.pack_transposed(dout_rows, op.dout.ld, queries, s.head_dim, dout_transposed, kTile);
      C* row_sum_out = row<C>(op.row_sum, batch * s.q_heads + q_head) + first;
      for (std::int64_t i = 0; i < queries; ++i) {
        lse[i] = (row<C>(op.lse, batch * s.q_heads + q_head) + first)[i];
        row_sum[i] = io.dot(dout_rows + i * op.dout.ld, row<S>(op.out, first_row + i) + column.q,
                            s.head_dim);
        row_sum_out[i] = row_sum[i];
      }
      zero(dq, kTile * head);
      for (std::int64_t other = 0; other <= tile; ++other) {
        const bool diagonal = other == tile;
        const std::int64_t keys = std::min(kTile, s.seq - other * kTile);
        const S* rows = row<S>(op.qkv, batch * s.seq + other * kTile);
        pack(io, rows + column.k, op.qkv.ld, keys, s.head_dim, k, head);
        const Rows<C> value_rows =
            rows_as_computed(io, rows + column.v, op.qkv.ld, keys, s.head_dim, v, head);
        score_tile(math, diagonal, keys, s.head_dim, k, head, q_transposed, p,
                   -std::numeric_limits<C>::infinity());
        add_alibi(s, q_head, keys, other * kTile - first, p);
        score_tile(math, diagonal, keys, s.head_dim, value_rows.data, value_rows.ld,
                   dout_transposed, ds, C(0));
        math.softmax_backward(p, ds, keys, static_cast<C>(s.scale), lse, row_sum);
        add_over_queries(math, diagonal, keys, queries, head, p, dout, dv + other * kTile * head);
        add_over_queries(math, diagonal, keys, queries, head, ds, q, dk + other * kTile * head);
        add_over_keys(math, diagonal, queries, keys, head, ds, k, dq);
      }
      for (std::int64_t i = 0; i < queries; ++i) {
        io.store(dq + i * head, nullptr, row<S>(op.dqkv, first_row + i) + column.q, s.head_dim,
                 false);
      }
    }
  }
  const Columns column = columns(s, kv_head * group);
  for (std::int64_t i = 0; i < s.seq; ++i) {
    S* out = row<S>(op.dqkv, batch * s.seq + i);
    io.store(dk + i * head, nullptr, out + column.k, s.head_dim, false);
    io.store(dv + i * head, nullptr, out + column.v, s.head_dim, false);
  }
}

std::int64_t compute_bytes(DType dtype) {
  return dtype == DType::f64 ? 8 : 4;
}

}  // namespace

std::int64_t attention_workspace_bytes(const AttentionForward& op, int threads) {
  return threads * forward_scratch(op.shape) * compute_bytes(op.qkv.dtype);
}

std::int64_t attention_workspace_bytes(const AttentionBackward& op, int threads) {
  return threads * backward_scratch(op.shape) * compute_bytes(op.qkv.dtype);
}

// Tiles are dealt in turn, ascending in even heads and descending in odd ones, so that the threads'
// sums of lengths are near each other.
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

// Threads over (batch, head of keys): no two write the same gradient, no atomics.
void run(const AttentionBackward& op, const Context& context) {
  const AttentionShape& s = op.shape;
  with_storage(op.qkv.dtype, [&]<class S>() {
#pragma omp parallel for schedule(static, 1)
    for (std::int64_t i = 0; i < s.batch * s.kv_heads; ++i) {
      backward_head<S>(op, context, i / s.kv_heads, i % s.kv_heads);
    }
  });
}

}  // namespace tessera::trainer::cpu
