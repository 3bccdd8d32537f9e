#include "trainer/device/cuda/attention_plain.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "lib/base/error.h"

namespace tessera::trainer::cuda {
namespace {

constexpr std::int64_t kAlignment = 256;  // of each matrix in the workspace
constexpr std::int64_t kPack = 8;         // leading dimensions of scores are multiples of it
constexpr std::int64_t kMostRows = 512;
constexpr std::int64_t kEnoughRows = 256;
constexpr std::int64_t kLeastRows = 16;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
constexpr std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return ceil_div(n, multiple) * multiple;
}

std::int64_t leading_dimension(std::int64_t keys) {
  return round_up(keys, kPack);
}

std::int64_t group_of(const AttentionShape& s) {
  return s.q_heads / s.kv_heads;
}

// Bytes of the scratch matrices; P and dS of f32 lie in place of the scores and dP.
struct Sizes {
  std::int64_t scores = 0;         // f32: S, and dP
  std::int64_t probabilities = 0;  // bf16: P, and dS
  std::int64_t key_gradients = 0;  // of bf16, in f32: dK, and dV

  std::int64_t forward() const { return scores + probabilities; }
  std::int64_t backward() const { return 2 * (scores + probabilities + key_gradients); }
};

Sizes sizes(const AttentionShape& s, DType dtype, const AttentionChunk& chunk) {
  const auto aligned = [](std::int64_t elements, DType of) {
    return round_up(elements * bytes_of(of), kAlignment);
  };
  const std::int64_t cells =
      chunk.kv_heads * chunk.group_heads * chunk.rows * leading_dimension(s.seq);
  Sizes result;
  result.scores = aligned(cells, DType::f32);
  if (dtype != DType::f32) {
    result.probabilities = aligned(cells, dtype);
    result.key_gradients = aligned(s.seq * chunk.kv_heads * s.head_dim, DType::f32);
  }
  return result;
}

AttentionChunk least_chunk(const AttentionShape& s) {
  return {1, 1, std::min(s.seq, kLeastRows)};
}

// The largest n from 1 to `most` for which fits(n), a part of `most` that leaves no small rest. 0
// if none does.
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
    return plain_attention_bytes(op, chunk) <= bytes;
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
                          plain_attention_least_bytes(op), bytes));
}

template <class Attention>
std::int64_t wanted_bytes(const Attention& op) {
  const AttentionShape& s = op.shape;
  const std::int64_t all = plain_attention_bytes(
      op, AttentionChunk{s.kv_heads, group_of(s), std::min(s.seq, kMostRows)});
  return std::max(plain_attention_least_bytes(op), std::min(all, kPlainAttentionBytes));
}

// Takes matrices from the workspace one after another.
class Space {
 public:
  explicit Space(std::span<std::byte> workspace) : next_(workspace.data()) {}
  std::byte* take(std::int64_t bytes) {
    std::byte* const result = next_;
    next_ += bytes;
    return result;
  }

 private:
  std::byte* next_;
};

Tensor part_of(const Tensor& t, std::int64_t row, std::int64_t rows, std::int64_t col,
               std::int64_t cols) {
  return {static_cast<std::byte*>(t.data) + (row * t.ld + col) * bytes_of(t.dtype), t.dtype, rows,
          cols, t.ld};
}

// One chunk, and where its matrices are. Products are a batch over the chunk's heads of keys, once
// for each head of queries of a group.
struct Chunk {
  const AttentionShape& s;
  std::int64_t batch;
  std::int64_t first_kv_head, kv_heads;
  std::int64_t first_of_group, group_heads;
  std::int64_t first_row, rows;

  std::int64_t keys() const { return first_row + rows; }
  std::int64_t ld() const { return leading_dimension(keys()); }
  std::int64_t q_head(std::int64_t of_group) const {
    return first_kv_head * group_of(s) + first_of_group + of_group;
  }

  // The first of the batch, of one head of queries of each group: columns of its queries in qkv or
  // dqkv, and of out or dout.
  Tensor queries(const Tensor& t, std::int64_t of_group) const {
    return part_of(t, batch * s.seq + first_row, rows, q_head(of_group) * s.head_dim, s.head_dim);
  }
  Tensor keys_of(const Tensor& qkv) const { return key_columns(qkv, s.q_heads); }
  Tensor values_of(const Tensor& qkv) const { return key_columns(qkv, s.q_heads + s.kv_heads); }
  // Of a matrix in the workspace.
  Tensor scores(std::byte* data, DType dtype, std::int64_t of_group) const {
    return {data + of_group * rows * ld() * bytes_of(dtype), dtype, rows, keys(), ld()};
  }
  Tensor all_scores(std::byte* data, DType dtype) const {
    return {data, dtype, kv_heads * group_heads * rows, keys(), ld()};
  }
  // Elements from one of the batch to the next.
  std::int64_t query_step() const { return group_of(s) * s.head_dim; }
  std::int64_t key_step() const { return s.head_dim; }
  std::int64_t score_step() const { return group_heads * rows * ld(); }

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

// The last rows first: they have all keys, so what is summed over chunks begins with a product that
// writes all of it.
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

// Chunks of one sequence's heads of keys from `first_kv_head` on; `is_first` of those that are
// summed into the same keys.
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

// All that a plan depends on.
using PlanKey = std::array<std::int64_t, 22>;

PlanKey key_of(const BatchedGemm& op) {
  PlanKey key{};
  auto next = key.begin();
  for (const Tensor* t : {&op.first.a, &op.first.b, &op.first.d}) {
    constexpr std::uintptr_t kAccess = 16;
    const auto beyond = reinterpret_cast<std::uintptr_t>(t->data) % kAccess;
    for (const std::int64_t value : {static_cast<std::int64_t>(t->dtype), t->rows, t->cols, t->ld,
                                     static_cast<std::int64_t>(beyond)})
      *next++ = value;
  }
  for (const std::int64_t value :
       {op.batch, op.a_step, op.b_step, op.d_step, std::int64_t{op.first.transpose_a},
        std::int64_t{op.first.transpose_b}, std::int64_t{op.first.accumulate}})
    *next++ = value;
  return key;
}

// Keeps one product of each plan.
class Recorder final : public PlainAttention {
 public:
  void run(const BatchedGemm& op) override {
    if (known_.insert(key_of(op)).second) gemms.push_back(op);
  }
  void run(const SoftmaxForward&) override {}
  void run(const SoftmaxBackward&) override {}
  void run(const RowSum&) override {}
  void run(const Cast&) override {}

  std::vector<BatchedGemm> gemms;

 private:
  std::set<PlanKey> known_;
};

template <class Attention>
std::vector<BatchedGemm> gemms_of(const Attention& op, std::span<std::byte> workspace) {
  Recorder recorder;
  run_plain_attention(op, workspace, recorder);
  return std::move(recorder.gemms);
}

}  // namespace

bool same_plan(const BatchedGemm& x, const BatchedGemm& y) {
  return key_of(x) == key_of(y);
}

std::int64_t plain_attention_bytes(const AttentionForward& op, const AttentionChunk& chunk) {
  return sizes(op.shape, op.qkv.dtype, chunk).forward();
}
std::int64_t plain_attention_bytes(const AttentionBackward& op, const AttentionChunk& chunk) {
  return sizes(op.shape, op.qkv.dtype, chunk).backward();
}

AttentionChunk plain_attention_chunk(const AttentionForward& op, std::int64_t workspace_bytes) {
  return chunk_of(op, workspace_bytes);
}
AttentionChunk plain_attention_chunk(const AttentionBackward& op, std::int64_t workspace_bytes) {
  return chunk_of(op, workspace_bytes);
}

std::int64_t plain_attention_least_bytes(const AttentionForward& op) {
  return plain_attention_bytes(op, least_chunk(op.shape));
}
std::int64_t plain_attention_least_bytes(const AttentionBackward& op) {
  return plain_attention_bytes(op, least_chunk(op.shape));
}
std::int64_t plain_attention_workspace_bytes(const AttentionForward& op) {
  return wanted_bytes(op);
}
std::int64_t plain_attention_workspace_bytes(const AttentionBackward& op) {
  return wanted_bytes(op);
}

void run_plain_attention(const AttentionForward& op, std::span<std::byte> workspace,
                         PlainAttention& parts) {
  const AttentionShape& s = op.shape;
  const DType dtype = op.qkv.dtype;
  const AttentionChunk size = chunk_of(op, static_cast<std::int64_t>(workspace.size()));
  const Sizes bytes = sizes(s, dtype, size);
  Space space(workspace);
  std::byte* const scores = space.take(bytes.scores);
  std::byte* const probabilities =
      bytes.probabilities > 0 ? space.take(bytes.probabilities) : scores;

  const auto run = [&](const Chunk& chunk, bool) {
    for (std::int64_t head = 0; head < chunk.group_heads; ++head) {
      parts.run(BatchedGemm{{.a = chunk.queries(op.qkv, head),
                             .b = chunk.keys_of(op.qkv),
                             .d = chunk.scores(scores, DType::f32, head)},
                            chunk.kv_heads,
                            chunk.query_step(),
                            chunk.key_step(),
                            chunk.score_step()});
    }
    parts.run(SoftmaxForward{chunk.of(scores), chunk.all_scores(probabilities, dtype), op.lse});
    for (std::int64_t head = 0; head < chunk.group_heads; ++head) {
      parts.run(BatchedGemm{{.a = chunk.scores(probabilities, dtype, head),
                             .b = chunk.values_of(op.qkv),
                             .d = chunk.queries(op.out, head),
                             .transpose_b = false},
                            chunk.kv_heads,
                            chunk.score_step(),
                            chunk.key_step(),
                            chunk.query_step()});
    }
  };
  for (std::int64_t batch = 0; batch < s.batch; ++batch) {
    for_parts(s.kv_heads, size.kv_heads, [&](std::int64_t first, std::int64_t count) {
      for_chunks(s, size, batch, first, count, run);
    });
  }
}

namespace {

// Where the gradients of keys and values are summed: f32 scratch, or dqkv itself where that is f32.
struct KeyGradients {
  Tensor keys, values;  // of one sequence, the columns of all heads of keys of a chunk
};

// The five products of a chunk.
void run_backward_chunk(const AttentionBackward& op, const Chunk& chunk, bool is_first,
                        std::byte* scores, std::byte* dprobabilities, std::byte* probabilities,
                        std::byte* dscores, const KeyGradients& sums, PlainAttention& parts) {
  const DType dtype = op.qkv.dtype;
  // Of one head of queries, for each head of keys of the chunk.
  const auto against_keys = [&](const Tensor& rows, const Tensor& keys, std::byte* to,
                                std::int64_t head) {
    parts.run(BatchedGemm{{.a = rows, .b = keys, .d = chunk.scores(to, DType::f32, head)},
                          chunk.kv_heads,
                          chunk.query_step(),
                          chunk.key_step(),
                          chunk.score_step()});
  };
  const auto into_keys = [&](std::byte* from, const Tensor& rows, const Tensor& sum,
                             std::int64_t head) {
    parts.run(BatchedGemm{{.a = chunk.scores(from, dtype, head),
                           .b = rows,
                           .d = part_of(sum, 0, chunk.keys(), 0, chunk.s.head_dim),
                           .transpose_a = true,
                           .transpose_b = false,
                           .accumulate = !is_first || head > 0},
                          chunk.kv_heads,
                          chunk.score_step(),
                          chunk.query_step(),
                          chunk.key_step()});
  };
  for (std::int64_t head = 0; head < chunk.group_heads; ++head) {
    against_keys(chunk.queries(op.qkv, head), chunk.keys_of(op.qkv), scores, head);
    against_keys(chunk.queries(op.dout, head), chunk.values_of(op.qkv), dprobabilities, head);
  }
  parts.run(SoftmaxBackward{chunk.of(scores), reinterpret_cast<const float*>(dprobabilities),
                            chunk.all_scores(probabilities, dtype),
                            chunk.all_scores(dscores, dtype), op.lse, op.row_sum});
  for (std::int64_t head = 0; head < chunk.group_heads; ++head) {
    into_keys(probabilities, chunk.queries(op.dout, head), sums.values, head);
    into_keys(dscores, chunk.queries(op.qkv, head), sums.keys, head);
    parts.run(BatchedGemm{{.a = chunk.scores(dscores, dtype, head),
                           .b = chunk.keys_of(op.qkv),
                           .d = chunk.queries(op.dqkv, head),
                           .transpose_b = false},
                          chunk.kv_heads,
                          chunk.score_step(),
                          chunk.key_step(),
                          chunk.query_step()});
  }
}

}  // namespace

void run_plain_attention(const AttentionBackward& op, std::span<std::byte> workspace,
                         PlainAttention& parts) {
  const AttentionShape& s = op.shape;
  const DType dtype = op.qkv.dtype;
  const AttentionChunk size = chunk_of(op, static_cast<std::int64_t>(workspace.size()));
  const Sizes bytes = sizes(s, dtype, size);
  const bool in_place = dtype == DType::f32;
  Space space(workspace);
  std::byte* const scores = space.take(bytes.scores);
  std::byte* const dprobabilities = space.take(bytes.scores);
  std::byte* const probabilities = in_place ? scores : space.take(bytes.probabilities);
  std::byte* const dscores = in_place ? dprobabilities : space.take(bytes.probabilities);
  std::byte* const keys = space.take(bytes.key_gradients);
  std::byte* const values = space.take(bytes.key_gradients);

  parts.run(RowSum{s, op.dout, op.out, op.row_sum});
  for (std::int64_t batch = 0; batch < s.batch; ++batch) {
    for_parts(s.kv_heads, size.kv_heads, [&](std::int64_t first, std::int64_t count) {
      const std::int64_t width = count * s.head_dim;
      const KeyGradients gradients{
          part_of(op.dqkv, batch * s.seq, s.seq, (s.q_heads + first) * s.head_dim, width),
          part_of(op.dqkv, batch * s.seq, s.seq, (s.q_heads + s.kv_heads + first) * s.head_dim,
                  width)};
      const KeyGradients scratch{{keys, DType::f32, s.seq, width, width},
                                 {values, DType::f32, s.seq, width, width}};
      const KeyGradients& sums = in_place ? gradients : scratch;
      for_chunks(s, size, batch, first, count, [&](const Chunk& chunk, bool is_first) {
        run_backward_chunk(op, chunk, is_first, scores, dprobabilities, probabilities, dscores,
                           sums, parts);
      });
      if (in_place) return;
      parts.run(Cast{scratch.keys, gradients.keys});
      parts.run(Cast{scratch.values, gradients.values});
    });
  }
}

std::vector<BatchedGemm> plain_attention_gemms(const AttentionForward& op,
                                               std::span<std::byte> workspace) {
  return gemms_of(op, workspace);
}
std::vector<BatchedGemm> plain_attention_gemms(const AttentionBackward& op,
                                               std::span<std::byte> workspace) {
  return gemms_of(op, workspace);
}

}  // namespace tessera::trainer::cuda
