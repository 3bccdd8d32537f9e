// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/attention/attention_graph.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

namespace tessera::trainer::cuda {

namespace {

namespace id = attention_id;

// Width of the packed q | k | v rows, in elements.
std::int64_t qkv_width(const AttentionGraphKey& key) {
  return (key.q_heads + 2 * key.kv_heads) * key.head_dim;
}

// Builds what both passes share. Extents are [batch, heads, rows, columns].
class GraphBuilder {
 public:
  explicit GraphBuilder(const AttentionGraphKey& key)
      : scores_extents{key.batch, key.q_heads, key.seq, key.seq},
        query_extents{key.batch, key.q_heads, key.seq, 1},
        head_extents{key.batch, key.q_heads, key.seq, key.head_dim},
        key_(key) {}

  const Extents scores_extents;
  const Extents query_extents;
  const Extents head_extents;  // of all query heads

  TensorGraph& graph() { return graph_; }

  // A tensor of `heads` heads within rows of ld elements: [batch, heads, seq, head_dim].
  std::size_t heads(std::int64_t id, std::int64_t heads, std::int64_t ld) {
    return graph_.memory(id, Element::bf16, {key_.batch, heads, key_.seq, key_.head_dim},
                         {key_.seq * ld, key_.head_dim, ld, 1});
  }
  std::size_t heads_transposed(std::int64_t id, std::int64_t heads, std::int64_t ld) {
    return graph_.memory(id, Element::bf16, {key_.batch, heads, key_.head_dim, key_.seq},
                         {key_.seq * ld, key_.head_dim, 1, ld});
  }
  std::size_t queries() { return heads(id::q, key_.q_heads, key_.ld_qkv); }
  std::size_t keys_transposed() { return heads_transposed(id::k, key_.kv_heads, key_.ld_qkv); }
  // One f32 for each query: [batch * q_heads, seq].
  std::size_t statistic(std::int64_t id) {
    return graph_.memory(id, Element::f32, query_extents, dense_strides(query_extents));
  }

  // An operation on scores: [batch, q_heads, seq, seq].
  std::size_t scores(Step step, std::vector<std::size_t> in, Element element = Element::f32,
                     std::int64_t axis = 0) {
    return graph_.apply(step, std::move(in), element, scores_extents, axis);
  }
  std::size_t per_query(Step step, std::vector<std::size_t> in) {
    return graph_.apply(step, std::move(in), Element::f32, query_extents);
  }

  // The causal mask: x where the query is not before the key, -infinity elsewhere.
  std::size_t causal(std::size_t x) {
    const std::size_t query = scores(Step::index, {x}, Element::i32, 2);
    const std::size_t key = scores(Step::index, {x}, Element::i32, 3);
    const std::size_t seen = scores(Step::greater_equal, {query, key}, Element::boolean);
    return scores(Step::select, {x, graph_.host(id::masked), seen});
  }

  // Scores as bf16 with queries and keys exchanged, for sums over queries.
  std::size_t transposed(std::size_t x) {
    return graph_.reinterpret(
        x, Element::bf16, scores_extents,
        {key_.q_heads * key_.seq * key_.seq, key_.seq * key_.seq, 1, key_.seq});
  }

  // The gradient of keys or values: by_key (transposed scores) times rows of queries, summed over
  // the query heads that share a kv head (GQA).
  void key_gradient(std::int64_t id, std::size_t by_key, std::size_t rows) {
    const std::size_t gradient = heads(id, key_.kv_heads, key_.ld_dqkv);
    if (key_.q_heads == key_.kv_heads) {
      graph_.write(Step::matmul, {by_key, rows}, gradient);
    } else {
      graph_.write(Step::sum,
                   {graph_.apply(Step::matmul, {by_key, rows}, Element::bf16, head_extents)},
                   gradient);
    }
  }

 private:
  const AttentionGraphKey& key_;
  TensorGraph graph_;
};

// Forward: P = softmax(scale Q K^T) in two steps, maximum and sum; lse = maximum + log(sum). O = P
// V.
TensorGraph forward_graph(const AttentionGraphKey& key) {
  GraphBuilder b(key);
  const std::size_t q = b.queries();
  const std::size_t k_transposed = b.keys_transposed();
  const std::size_t v = b.heads(id::v, key.kv_heads, key.ld_qkv);
  const std::size_t out = b.heads(id::out, key.q_heads, key.ld_out);
  const std::size_t lse = b.statistic(id::lse);
  const std::size_t scale = b.graph().host(id::scale);

  const std::size_t scaled =
      b.scores(Step::multiply, {b.scores(Step::matmul, {q, k_transposed}), scale});
  const std::size_t seen = b.causal(scaled);
  const std::size_t maximum = b.per_query(Step::maximum, {seen});
  const std::size_t weights =
      b.scores(Step::exponential, {b.scores(Step::subtract, {seen, maximum})});
  const std::size_t sum = b.per_query(Step::sum, {weights});
  b.graph().write(Step::add, {maximum, b.per_query(Step::logarithm, {sum})}, lse);
  b.graph().write(Step::matmul, {b.scores(Step::divide, {weights, sum}, Element::bf16), v}, out);
  return std::move(b.graph());
}

// Backward: P from lse; dV = P^T dO; dS = P (dO V^T - row_sum) scale; dK = dS^T Q; dQ = dS K. This
// is FlashAttention's backward pass (Dao et al. 2022).
TensorGraph backward_graph(const AttentionGraphKey& key) {
  GraphBuilder b(key);
  TensorGraph& graph = b.graph();
  const std::size_t q = b.queries();
  const std::size_t k_transposed = b.keys_transposed();
  const std::size_t v_transposed = b.heads_transposed(id::v, key.kv_heads, key.ld_qkv);
  const std::size_t out = b.heads(id::out, key.q_heads, key.ld_out);
  const std::size_t dout = b.heads(id::dout, key.q_heads, key.ld_dout);
  const std::size_t lse = b.statistic(id::lse);
  const std::size_t row_sum = b.statistic(id::row_sum);
  const std::size_t scale = graph.host(id::scale);
  const std::size_t one = graph.host(id::one);
  const std::size_t dq = b.heads(id::dq, key.q_heads, key.ld_dqkv);

  const std::size_t product =
      graph.apply(Step::multiply, {dout, out}, Element::f32, b.head_extents);
  // Multiplies by one: cuDNN expects a factor here, that of dropout.
  graph.write(Step::multiply, {b.per_query(Step::sum, {product}), one}, row_sum);

  const std::size_t scaled =
      b.scores(Step::multiply, {b.scores(Step::matmul, {q, k_transposed}), scale});
  const std::size_t p =
      b.scores(Step::exponential, {b.causal(b.scores(Step::subtract, {scaled, lse}))});
  b.key_gradient(id::dv, b.transposed(p), dout);

  const std::size_t centred =
      b.scores(Step::subtract, {b.scores(Step::matmul, {dout, v_transposed}), row_sum});
  const std::size_t ds = b.scores(Step::multiply, {b.scores(Step::multiply, {centred, p}), scale});
  b.key_gradient(id::dk, b.transposed(ds), q);

  const std::size_t k = graph.reinterpret(k_transposed, Element::bf16,
                                          {key.batch, key.kv_heads, key.seq, key.head_dim},
                                          {key.seq * key.ld_qkv, key.head_dim, key.ld_qkv, 1});
  if (key.pass == AttentionPass::backward_deterministic) {
    graph.write(Step::matmul, {ds, k}, dq);
  } else {
    const std::size_t sums =
        graph.memory(id::dq_sums, Element::f32, b.head_extents, dense_strides(b.head_extents));
    graph.write(Step::matmul, {ds, k}, sums);
    graph.write(Step::copy, {sums}, dq);
  }
  return std::move(b.graph());
}

AttentionGraphKey key_of_shape(const AttentionShape& s, const Tensor& qkv) {
  AttentionGraphKey key;
  key.batch = s.batch;
  key.seq = s.seq;
  key.q_heads = s.q_heads;
  key.kv_heads = s.kv_heads;
  key.head_dim = s.head_dim;
  key.dtype = qkv.dtype;
  key.alibi = s.alibi_bias_max != 0;
  key.ld_qkv = qkv.ld;
  return key;
}

// Returns the address of column `column` in the first row.
void* column(const Tensor& t, std::int64_t column) {
  return static_cast<std::byte*>(t.data) + column * bytes_of(t.dtype);
}

void bind_heads(std::vector<Binding>& to, const AttentionShape& s, const Tensor& qkv,
                std::int64_t q, std::int64_t k, std::int64_t v) {
  to.push_back({q, column(qkv, 0)});
  to.push_back({k, column(qkv, s.q_heads * s.head_dim)});
  to.push_back({v, column(qkv, (s.q_heads + s.kv_heads) * s.head_dim)});
}

}  // namespace

AttentionGraphKey key_of(const AttentionForward& op) {
  AttentionGraphKey key = key_of_shape(op.shape, op.qkv);
  key.ld_out = op.out.ld;
  key.ld_lse = op.lse.ld;
  return key;
}

AttentionGraphKey key_of(const AttentionBackward& op, bool deterministic) {
  AttentionGraphKey key = key_of_shape(op.shape, op.qkv);
  key.pass = deterministic ? AttentionPass::backward_deterministic : AttentionPass::backward;
  key.ld_out = op.out.ld;
  key.ld_lse = op.lse.ld;
  key.ld_dout = op.dout.ld;
  key.ld_dqkv = op.dqkv.ld;
  key.ld_row_sum = op.row_sum.ld;
  return key;
}

std::string to_text(const AttentionGraphKey& key) {
  constexpr const char* kPasses[] = {"forward", "backward", "deterministic backward"};
  std::string text =
      fmt::format("{} b{} s{} h{}/{} d{} {}", kPasses[static_cast<std::size_t>(key.pass)],
                  key.batch, key.seq, key.q_heads, key.kv_heads, key.head_dim, to_text(key.dtype));
  const auto add = [&](const char* name, std::int64_t ld, std::int64_t least) {
    if (ld != 0 && ld != least) text += fmt::format(" {} {}", name, ld);
  };
  add("ld_qkv", key.ld_qkv, qkv_width(key));
  add("ld_out", key.ld_out, key.q_heads * key.head_dim);
  add("ld_lse", key.ld_lse, key.seq);
  add("ld_dout", key.ld_dout, key.q_heads * key.head_dim);
  add("ld_dqkv", key.ld_dqkv, qkv_width(key));
  add("ld_row_sum", key.ld_row_sum, key.seq);
  if (key.alibi) text += " alibi";
  return text;
}

std::optional<std::string> why_unsupported(const AttentionGraphKey& key) {
  constexpr std::int64_t kElements = 8;  // bf16 elements of a 16-byte load
  if (key.dtype != DType::bf16) {
    return fmt::format("cuDNN's attention is in bf16, not in {}", to_text(key.dtype));
  }
  if (key.alibi) return "cuDNN's attention is used without ALiBi";
  if (key.head_dim < kElements || key.head_dim % kElements != 0 || key.head_dim > 256) {
    return fmt::format(
        "cuDNN's attention takes heads of a multiple of 8 up to 256 elements, not of {}",
        key.head_dim);
  }
  if (key.seq < 2) return "cuDNN's attention takes sequences of 2 tokens and more";
  for (const std::int64_t ld : {key.ld_qkv, key.ld_out, key.ld_dout, key.ld_dqkv}) {
    if (ld % kElements != 0) {
      return fmt::format(
          "cuDNN's attention takes rows that begin at multiples of 16 bytes, not each {} elements",
          ld);
    }
  }
  // The backward pass reads lse as if it were dense, whatever strides it is given.
  const bool sums = key.pass != AttentionPass::forward;
  if (key.ld_lse != key.seq || (sums && key.ld_row_sum != key.seq)) {
    return "cuDNN's attention takes lse and row_sum without gaps between rows";
  }
  return std::nullopt;
}

memory::FusedAttention size_of(const AttentionGraphKey& key) {
  return {key.pass, key.batch, key.seq, key.q_heads, key.kv_heads, key.head_dim};
}

TensorGraph attention_graph(const AttentionGraphKey& key) {
  return key.pass == AttentionPass::forward ? forward_graph(key) : backward_graph(key);
}

std::vector<Binding> bindings(const AttentionForward& op, AttentionScalars& scalars) {
  scalars.scale = op.shape.scale;
  std::vector<Binding> all;
  bind_heads(all, op.shape, op.qkv, id::q, id::k, id::v);
  all.push_back({id::out, op.out.data});
  all.push_back({id::lse, op.lse.data});
  all.push_back({id::scale, &scalars.scale});
  all.push_back({id::masked, &scalars.masked});
  return all;
}

std::vector<Binding> bindings(const AttentionBackward& op, void* dq_sums,
                              AttentionScalars& scalars) {
  scalars.scale = op.shape.scale;
  std::vector<Binding> all;
  bind_heads(all, op.shape, op.qkv, id::q, id::k, id::v);
  bind_heads(all, op.shape, op.dqkv, id::dq, id::dk, id::dv);
  all.push_back({id::out, op.out.data});
  all.push_back({id::lse, op.lse.data});
  all.push_back({id::dout, op.dout.data});
  all.push_back({id::row_sum, op.row_sum.data});
  if (dq_sums != nullptr) all.push_back({id::dq_sums, dq_sums});
  all.push_back({id::scale, &scalars.scale});
  all.push_back({id::masked, &scalars.masked});
  all.push_back({id::one, &scalars.one});
  return all;
}

}  // namespace tessera::trainer::cuda
