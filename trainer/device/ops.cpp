// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/ops.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "trainer/device/parts.h"

namespace tessera::trainer {
namespace {

std::int64_t bytes(const Tensor& t) {
  return t ? t.rows * t.cols * bytes_of(t.dtype) : 0;
}

// An accumulated output is read as well.
std::int64_t bytes(const Tensor& t, bool accumulate) {
  return bytes(t) * (accumulate ? 2 : 1);
}

// FLOPs of one product of the causal half: half of 2 S^2 D, where a multiply-add counts 2.
double attention_product_flops(const AttentionShape& s) {
  return static_cast<double>(s.batch) * static_cast<double>(s.q_heads) *
         static_cast<double>(s.seq) * static_cast<double>(s.seq) * static_cast<double>(s.head_dim);
}

Cost cost_of(const Gemm& o) {
  const std::int64_t k = o.transpose_a ? o.a.rows : o.a.cols;
  return {
      2.0 * static_cast<double>(o.d.rows) * static_cast<double>(o.d.cols) * static_cast<double>(k),
      bytes(o.a) + bytes(o.b) + bytes(o.d, o.accumulate) + bytes(o.bias) + bytes(o.pre)};
}
Cost cost_of(const BiasGrad& o) {
  return {0, bytes(o.dy) + bytes(o.dbias, o.accumulate)};
}
Tensor rotated_columns(const Rope& o) {
  Tensor part = o.qkv;
  part.cols = (o.shape.q_heads + o.shape.kv_heads) * o.shape.head_dim;
  return part;
}

Cost cost_of(const Rope& o) {
  return {0, 2 * bytes(rotated_columns(o))};
}
Cost cost_of(const AttentionForward& o) {
  return {2 * attention_product_flops(o.shape), bytes(o.qkv) + bytes(o.out) + bytes(o.lse)};
}
Cost cost_of(const AttentionBackward& o) {
  return {5 * attention_product_flops(o.shape),
          bytes(o.qkv) + bytes(o.out) + bytes(o.lse) + bytes(o.dout) + bytes(o.dqkv)};
}
Cost cost_of(const NormForward& o) {
  return {0, bytes(o.x) + bytes(o.add) + (o.add ? bytes(o.sum) : 0) + bytes(o.y) + bytes(o.gain) +
                 bytes(o.bias) + bytes(o.mean) + bytes(o.rstd)};
}
Cost cost_of(const NormBackward& o) {
  return {0, bytes(o.dy) + bytes(o.dsum_in) + bytes(o.sum) + bytes(o.gain) + bytes(o.mean) +
                 bytes(o.rstd) + bytes(o.dsum) + bytes(o.dgain, o.accumulate) +
                 bytes(o.dbias, o.accumulate)};
}
Cost cost_of(const ActForward& o) {
  return {0, bytes(o.x) + bytes(o.y)};
}
Cost cost_of(const ActBackward& o) {
  return {0, bytes(o.x) + bytes(o.dy) + bytes(o.dx)};
}
// Only the table's looked-up rows count, as if all tokens of the batch differed.
Cost cost_of(const Embed& o) {
  return {0, bytes(o.tokens) + 2 * bytes(o.y)};
}
// Rows of an accumulated table are read and written where there is a token.
Cost cost_of(const EmbedBackward& o) {
  Tensor added = o.dtable;
  added.rows = std::min(o.dtable.rows, o.dy.rows);
  return {0, bytes(o.order) + bytes(o.starts) + bytes(o.dy) +
                 (o.accumulate_table ? bytes(added, true) : bytes(o.dtable)) +
                 bytes(o.dpositions, o.accumulate_positions)};
}
Cost cost_of(const CrossEntropy& o) {
  return {0, 2 * bytes(o.logits) + bytes(o.targets) + bytes(o.row_loss)};
}
Cost cost_of(const SumLoss& o) {
  return {0, bytes(o.row_loss)};
}
Cost cost_of(const Cast& o) {
  return {0, bytes(o.src) + bytes(o.dst, o.accumulate)};
}
Cost cost_of(const SquaredNorm& o) {
  return {0, bytes(o.x)};
}
Cost cost_of(const FinishNorm& o) {
  return {0, o.count * static_cast<std::int64_t>(sizeof(double))};
}
Cost cost_of(const AdamW& o) {
  return {0, bytes(o.grad) + 2 * (bytes(o.master) + bytes(o.m) + bytes(o.v)) + bytes(o.param)};
}
Cost cost_of(const Init& o) {
  return {0, bytes(o.dst)};
}

struct NameOf {
  const char* operator()(const Gemm&) const { return "gemm"; }
  const char* operator()(const BiasGrad&) const { return "bias_grad"; }
  const char* operator()(const Rope&) const { return "rope"; }
  const char* operator()(const AttentionForward&) const { return "attention_forward"; }
  const char* operator()(const AttentionBackward&) const { return "attention_backward"; }
  const char* operator()(const NormForward&) const { return "norm_forward"; }
  const char* operator()(const NormBackward&) const { return "norm_backward"; }
  const char* operator()(const ActForward&) const { return "act_forward"; }
  const char* operator()(const ActBackward&) const { return "act_backward"; }
  const char* operator()(const Embed&) const { return "embed"; }
  const char* operator()(const EmbedBackward&) const { return "embed_backward"; }
  const char* operator()(const CrossEntropy&) const { return "cross_entropy"; }
  const char* operator()(const SumLoss&) const { return "sum_loss"; }
  const char* operator()(const Cast&) const { return "cast"; }
  const char* operator()(const SquaredNorm&) const { return "squared_norm"; }
  const char* operator()(const FinishNorm&) const { return "finish_norm"; }
  const char* operator()(const AdamW&) const { return "adamw"; }
  const char* operator()(const Init&) const { return "init"; }
};

}  // namespace

const char* op_name(const Op& op) {
  return std::visit(NameOf{}, op);
}

double alibi_slope(std::int64_t head, std::int64_t heads, double bias_max) {
  const auto power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(heads)));
  std::int64_t number = head + 1;
  if (power != heads) {
    const std::int64_t odd = power / 2;
    number = head < odd ? 2 * (head + 1) : 2 * (head - odd) + 1;
  }
  return std::exp2(-bias_max * static_cast<double>(number) / static_cast<double>(power));
}

Cost cost(const Op& op) {
  return std::visit([](const auto& o) { return cost_of(o); }, op);
}

}  // namespace tessera::trainer
