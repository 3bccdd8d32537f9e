// SPDX-License-Identifier: Apache-2.0
// Every field of every operation, for code that treats all operations alike. A structured binding
// names them, so a field that is added to an operation and not here does not compile.
#pragma once

#include "trainer/device/ops.h"

namespace tessera::trainer {

// visit_fields(op, f) calls f(fields...).
template <class F>
void visit_fields(const AttentionShape& o, F&& f) {
  const auto& [batch, seq, q_heads, kv_heads, head_dim, scale, alibi_bias_max] = o;
  f(batch, seq, q_heads, kv_heads, head_dim, scale, alibi_bias_max);
}
template <class F>
void visit_fields(const Tensor& o, F&& f) {
  const auto& [data, dtype, rows, cols, ld] = o;
  f(data, dtype, rows, cols, ld);
}
template <class F>
void visit_fields(const Gemm& o, F&& f) {
  const auto& [a, b, d, transpose_a, transpose_b, accumulate, bias, epilogue, pre] = o;
  f(a, b, d, transpose_a, transpose_b, accumulate, bias, epilogue, pre);
}
template <class F>
void visit_fields(const BiasGrad& o, F&& f) {
  const auto& [dy, dbias, partials, accumulate] = o;
  f(dy, dbias, partials, accumulate);
}
template <class F>
void visit_fields(const Rope& o, F&& f) {
  const auto& [shape, qkv, theta, backward] = o;
  f(shape, qkv, theta, backward);
}
template <class F>
void visit_fields(const AttentionForward& o, F&& f) {
  const auto& [shape, qkv, out, lse] = o;
  f(shape, qkv, out, lse);
}
template <class F>
void visit_fields(const AttentionBackward& o, F&& f) {
  const auto& [shape, qkv, out, lse, dout, dqkv, row_sum] = o;
  f(shape, qkv, out, lse, dout, dqkv, row_sum);
}
template <class F>
void visit_fields(const NormForward& o, F&& f) {
  const auto& [kind, eps, x, add, sum, y, gain, bias, mean, rstd] = o;
  f(kind, eps, x, add, sum, y, gain, bias, mean, rstd);
}
template <class F>
void visit_fields(const NormBackward& o, F&& f) {
  const auto& [kind, dy, dsum_in, sum, gain, mean, rstd, dsum, dgain, dbias, partials, accumulate] =
      o;
  f(kind, dy, dsum_in, sum, gain, mean, rstd, dsum, dgain, dbias, partials, accumulate);
}
template <class F>
void visit_fields(const ActForward& o, F&& f) {
  const auto& [kind, x, y] = o;
  f(kind, x, y);
}
template <class F>
void visit_fields(const ActBackward& o, F&& f) {
  const auto& [kind, x, dy, dx] = o;
  f(kind, x, dy, dx);
}
template <class F>
void visit_fields(const Embed& o, F&& f) {
  const auto& [tokens, table, positions, y, seq] = o;
  f(tokens, table, positions, y, seq);
}
template <class F>
void visit_fields(const EmbedBackward& o, F&& f) {
  const auto& [order, starts, dy, dtable, dpositions, seq, accumulate_table, accumulate_positions] =
      o;
  f(order, starts, dy, dtable, dpositions, seq, accumulate_table, accumulate_positions);
}
template <class F>
void visit_fields(const CrossEntropy& o, F&& f) {
  const auto& [logits, targets, row_loss, vocab, in] = o;
  f(logits, targets, row_loss, vocab, in);
}
template <class F>
void visit_fields(const SumLoss& o, F&& f) {
  const auto& [row_loss, in, state, accumulate] = o;
  f(row_loss, in, state, accumulate);
}
template <class F>
void visit_fields(const Cast& o, F&& f) {
  const auto& [src, dst, accumulate] = o;
  f(src, dst, accumulate);
}
template <class F>
void visit_fields(const SquaredNorm& o, F&& f) {
  const auto& [x, partials] = o;
  f(x, partials);
}
template <class F>
void visit_fields(const FinishNorm& o, F&& f) {
  const auto& [partials, count, in, state] = o;
  f(partials, count, in, state);
}
template <class F>
void visit_fields(const AdamW& o, F&& f) {
  const auto& [grad, master, m, v, param, beta1, beta2, eps, decay_end, in, state] = o;
  f(grad, master, m, v, param, beta1, beta2, eps, decay_end, in, state);
}
template <class F>
void visit_fields(const Init& o, F&& f) {
  const auto& [dst, mean, stddev, seed, first_index] = o;
  f(dst, mean, stddev, seed, first_index);
}

}  // namespace tessera::trainer
