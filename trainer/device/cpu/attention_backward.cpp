// SPDX-License-Identifier: Apache-2.0
// Causal attention, the backward pass, by tiles (attention_tiles.h), with P recomputed from lse as
// in FlashAttention (Dao et al. 2022).
//
// Rounding: scores, P, dP and dS stay in f32 (f64), also for bf16. Rounded once, when stored: dqkv.
// Sums run over keys (dQ) or queries (dK, dV) in ascending order, so the bits do not depend on the
// number of threads.
#include "trainer/device/cpu/attention_tiles.h"

namespace tessera::trainer::cpu {
namespace {

// Elements of a thread's scratch: Q, dO and their transposes, K, V, dQ, two score tiles, two
// vectors, dK and dV of a whole head.
std::int64_t backward_scratch(const AttentionShape& s) {
  return kTile * (7 * padded_head(s) + 2 * kTile + 2) + 2 * tiles(s) * kTile * padded_head(s);
}

// A thread's tiles of the backward pass: a tile of queries with its statistics, and the gradients
// of its scores against one tile of keys at a time.
template <class S>
class BackwardTiles {
 public:
  using C = Compute<S>;

  BackwardTiles(const AttentionBackward& op, const Context& context)
      : op_(op),
        io_(storage<S>(context.kernels)),
        math_(compute<C>(context.kernels)),
        head_(padded_head(op.shape)) {
    Scratch<C> scratch(context, backward_scratch(op.shape));
    q_ = scratch.take(kTile * head_);
    q_transposed_ = scratch.take(head_ * kTile);
    dout_ = scratch.take(kTile * head_);
    dout_transposed_ = scratch.take(head_ * kTile);
    k_ = scratch.take(kTile * head_);
    v_ = scratch.take(kTile * head_);
    dq_ = scratch.take(kTile * head_);
    p_ = scratch.take(kTile * kTile);
    ds_ = scratch.take(kTile * kTile);
    lse_ = scratch.take(kTile);
    row_sum_ = scratch.take(kTile);
    const std::int64_t whole = tiles(op.shape) * kTile * head_;
    dk_ = scratch.take(whole);
    dv_ = scratch.take(whole);
    zero(lse_, kTile);
    zero(row_sum_, kTile);
  }

  enum class RowSum : bool { make, read };  // make: computes it and stores it for those who read

  // Loads a tile of queries: Q and dO, both as they are and transposed, lse and row_sum.
  void take_queries(std::int64_t batch, std::int64_t q_head, std::int64_t tile, RowSum row_sum) {
    const AttentionShape& s = op_.shape;
    batch_ = batch;
    q_head_ = q_head;
    tile_ = tile;
    queries_ = std::min(kTile, s.seq - tile * kTile);
    const std::int64_t column = columns(s, q_head).q;
    const S* q_rows = row<S>(op_.qkv, first_row()) + column;
    const S* dout_rows = row<S>(op_.dout, first_row()) + column;
    pack(io_, q_rows, op_.qkv.ld, queries_, s.head_dim, q_, head_);
    pack(io_, dout_rows, op_.dout.ld, queries_, s.head_dim, dout_, head_);
    io_.pack_transposed(q_rows, op_.qkv.ld, queries_, s.head_dim, q_transposed_, kTile);
    io_.pack_transposed(dout_rows, op_.dout.ld, queries_, s.head_dim, dout_transposed_, kTile);
    const std::int64_t statistics = batch * s.q_heads + q_head;
    std::copy_n(row<C>(op_.lse, statistics) + tile * kTile, queries_, lse_);
    C* sums = row<C>(op_.row_sum, statistics) + tile * kTile;
    if (row_sum == RowSum::make) {
      for (std::int64_t i = 0; i < queries_; ++i) {
        sums[i] = io_.dot(dout_rows + i * op_.dout.ld, row<S>(op_.out, first_row() + i) + column,
                          s.head_dim);
      }
    }
    std::copy_n(sums, queries_, row_sum_);
  }

  // Computes P and dS of the loaded queries against the keys of tile `other`, which does not lie
  // behind them.
  void take_keys(std::int64_t other) {
    const AttentionShape& s = op_.shape;
    const Columns column = columns(s, q_head_);
    diagonal_ = other == tile_;
    keys_ = std::min(kTile, s.seq - other * kTile);
    const S* rows = row<S>(op_.qkv, batch_ * s.seq + other * kTile);
    pack(io_, rows + column.k, op_.qkv.ld, keys_, s.head_dim, k_, head_);
    const Rows<C> value_rows =
        rows_as_computed(io_, rows + column.v, op_.qkv.ld, keys_, s.head_dim, v_, head_);
    score_tile(math_, diagonal_, keys_, s.head_dim, k_, head_, q_transposed_, p_,
               -std::numeric_limits<C>::infinity());
    add_alibi(s, q_head_, keys_, (other - tile_) * kTile, p_);
    score_tile(math_, diagonal_, keys_, s.head_dim, value_rows.data, value_rows.ld,
               dout_transposed_, ds_, C(0));
    math_.softmax_backward(p_, ds_, keys_, static_cast<C>(s.scale), lse_, row_sum_);
  }

  void begin_queries() { zero(dq_, kTile * head_); }
  void add_to_queries() { add_over_keys(math_, diagonal_, queries_, keys_, head_, ds_, k_, dq_); }
  void store_queries() {
    const std::int64_t column = columns(op_.shape, q_head_).q;
    for (std::int64_t i = 0; i < queries_; ++i) {
      io_.store(dq_ + i * head_, nullptr, row<S>(op_.dqkv, first_row() + i) + column,
                op_.shape.head_dim, false);
    }
  }

  // Clears the gradients of `count` tiles of keys and values, which are kept in slots from 0 on.
  void begin_keys(std::int64_t count) {
    zero(dk_, count * kTile * head_);
    zero(dv_, count * kTile * head_);
  }
  void add_to_keys(std::int64_t slot) {
    const std::int64_t begin = slot * kTile * head_;
    add_over_queries(math_, diagonal_, keys_, queries_, head_, p_, dout_, dv_ + begin);
    add_over_queries(math_, diagonal_, keys_, queries_, head_, ds_, q_, dk_ + begin);
  }
  // Stores `count` tiles of dK and dV; slot 0 is tile `first`.
  void store_keys(std::int64_t batch, std::int64_t kv_head, std::int64_t first,
                  std::int64_t count) {
    const AttentionShape& s = op_.shape;
    const Columns column = columns(s, kv_head * (s.q_heads / s.kv_heads));
    const std::int64_t begin = first * kTile;
    const std::int64_t end = std::min(s.seq, begin + count * kTile);
    for (std::int64_t i = begin; i < end; ++i) {
      S* out = row<S>(op_.dqkv, batch * s.seq + i);
      io_.store(dk_ + (i - begin) * head_, nullptr, out + column.k, s.head_dim, false);
      io_.store(dv_ + (i - begin) * head_, nullptr, out + column.v, s.head_dim, false);
    }
  }

 private:
  std::int64_t first_row() const { return batch_ * op_.shape.seq + tile_ * kTile; }

  const AttentionBackward& op_;
  const StorageKernels<S>& io_;
  const ComputeKernels<C>& math_;
  std::int64_t head_;
  C *q_, *q_transposed_, *dout_, *dout_transposed_, *k_, *v_, *dq_, *p_, *ds_, *lse_, *row_sum_;
  C *dk_, *dv_;
  std::int64_t batch_ = 0;
  std::int64_t q_head_ = 0;
  std::int64_t tile_ = 0;
  std::int64_t queries_ = 0;
  std::int64_t keys_ = 0;
  bool diagonal_ = false;
};

// Computes all gradients of one kv head: its queries' tiles in order, for each of its query heads.
template <class S>
void backward_head(const AttentionBackward& op, const Context& context, std::int64_t batch,
                   std::int64_t kv_head) {
  using Tiles = BackwardTiles<S>;
  const AttentionShape& s = op.shape;
  const std::int64_t group = s.q_heads / s.kv_heads;
  Tiles work(op, context);
  work.begin_keys(tiles(s));
  for (std::int64_t q_head = kv_head * group; q_head < (kv_head + 1) * group; ++q_head) {
    for (std::int64_t tile = 0; tile < tiles(s); ++tile) {
      work.take_queries(batch, q_head, tile, Tiles::RowSum::make);
      work.begin_queries();
      for (std::int64_t other = 0; other <= tile; ++other) {
        work.take_keys(other);
        work.add_to_keys(other);
        work.add_to_queries();
      }
      work.store_queries();
    }
  }
  // Computes dQ of one tile of queries, and row_sum for backward_keys.
  work.store_keys(batch, kv_head, 0, tiles(s));
}

template <class S>
void backward_queries(const AttentionBackward& op, const Context& context, std::int64_t batch,
                      std::int64_t q_head, std::int64_t tile) {
  using Tiles = BackwardTiles<S>;
  Tiles work(op, context);
  work.take_queries(batch, q_head, tile, Tiles::RowSum::make);
  work.begin_queries();
  for (std::int64_t other = 0; other <= tile; ++other) {
    work.take_keys(other);
    work.add_to_queries();
  }
  work.store_queries();
}

// Computes dK and dV of one tile of keys. It reads row_sum, so it runs after all of
// backward_queries.
template <class S>
void backward_keys(const AttentionBackward& op, const Context& context, std::int64_t batch,
                   std::int64_t kv_head, std::int64_t other) {
  using Tiles = BackwardTiles<S>;
  const AttentionShape& s = op.shape;
  const std::int64_t group = s.q_heads / s.kv_heads;
  Tiles work(op, context);
  work.begin_keys(1);
  for (std::int64_t q_head = kv_head * group; q_head < (kv_head + 1) * group; ++q_head) {
    for (std::int64_t tile = other; tile < tiles(s); ++tile) {
      work.take_queries(batch, q_head, tile, Tiles::RowSum::read);
      work.take_keys(other);
      work.add_to_keys(0);
    }
  }
  work.store_keys(batch, kv_head, other, 1);
}

// Returns whether to split the work by tiles rather than by whole heads. With whole heads the
// thread with the most heads decides. By tiles, scores and their gradients are computed twice (7
// products instead of 5), and more is packed.
bool by_tiles(const AttentionShape& s, int threads) {
  constexpr std::int64_t kWork = 5;
  constexpr std::int64_t kWorkByTiles = 8;
  const std::int64_t heads = s.batch * s.kv_heads;
  return tiles(s) > 1 && kWork * ((heads + threads - 1) / threads) * threads > kWorkByTiles * heads;
}

}  // namespace

std::int64_t attention_workspace_bytes(const AttentionBackward& op, int threads) {
  return threads * backward_scratch(op.shape) * compute_bytes(op.qkv.dtype);
}

// Splits the work over (batch, kv head) or, if those are few, over tiles: of queries, then of keys,
// the longest first. No two threads write the same gradient, and each sum has one order, so both
// ways give the same bits.
void run(const AttentionBackward& op, const Context& context) {
  const AttentionShape& s = op.shape;
  const std::int64_t heads = s.batch * s.kv_heads;
  const std::int64_t q_heads = s.batch * s.q_heads;
  with_storage(op.qkv.dtype, [&]<class S>() {
    if (!by_tiles(s, context.threads)) {
#pragma omp parallel for schedule(static, 1)
      for (std::int64_t i = 0; i < heads; ++i) {
        backward_head<S>(op, context, i / s.kv_heads, i % s.kv_heads);
      }
      return;
    }
#pragma omp parallel
    {
#pragma omp for schedule(dynamic, 1)
      for (std::int64_t i = 0; i < q_heads * tiles(s); ++i) {
        const std::int64_t head = i % q_heads;
        backward_queries<S>(op, context, head / s.q_heads, head % s.q_heads,
                            tiles(s) - 1 - i / q_heads);
      }
#pragma omp for schedule(dynamic, 1)
      for (std::int64_t i = 0; i < heads * tiles(s); ++i) {
        const std::int64_t head = i % heads;
        backward_keys<S>(op, context, head / s.kv_heads, head % s.kv_heads, i / heads);
      }
    }
  });
}

}  // namespace tessera::trainer::cpu
