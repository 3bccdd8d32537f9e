// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/block.h"

#include <fmt/format.h>

#include <cmath>

namespace tessera::trainer {

namespace {

constexpr float kAlibiBiasMax = 8;  // MPT's

struct Tensors {
  Tensor x, norm1, qkv, attention, lse, mid, norm2, up, act, branch;
  Tensor mean1, rstd1, mean2, rstd2;
};

Tensors tensors_of(const Pass& pass, std::int64_t layer) {
  const bool in_forward = pass.phase == Phase::forward;
  const auto name = [&](const char* part) {
    return memory::block_buffer(pass.memory.mask(), pass.memory.config().offload, layer, part,
                                in_forward ? memory::Made::forward : memory::Made::again);
  };
  const auto activation = [&](const char* part, std::int64_t cols) {
    return pass.activation(name(part), cols);
  };
  const auto statistic = [&](const char* part) { return pass.statistic(name(part)); };
  Tensors t;
  t.x = pass.residual(block_input(pass.memory, layer));
  t.norm1 = activation("norm1", pass.width());
  t.qkv = activation("qkv", pass.qkv_width());
  t.attention = activation("attention", pass.attention_width());
  t.lse = pass.memory.tensor(name("lse"), pass.sequences * pass.shape().n_heads, pass.seq_len(),
                             DType::f32);
  t.mid = pass.residual(name("mid"));
  t.norm2 = activation("norm2", pass.width());
  t.up = activation("up", model::mlp_in_width(pass.shape()));
  t.act = activation("act", pass.shape().ffn);
  const bool from_its_input =
      pass.memory.mask()[static_cast<std::size_t>(layer)] == memory::Keep::input;
  if (in_forward || (pass.phase == Phase::recompute && from_its_input))
    t.branch = pass.activation(in_forward ? "branch" : "b.branch", pass.width());
  t.mean1 = statistic("mean1");
  t.rstd1 = statistic("rstd1");
  t.mean2 = statistic("mean2");
  t.rstd2 = statistic("rstd2");
  return t;
}

AttentionShape attention_shape(const Pass& pass) {
  const model::Shape& shape = pass.shape();
  return {.batch = pass.sequences,
          .seq = pass.seq_len(),
          .q_heads = shape.n_heads,
          .kv_heads = shape.n_kv_heads,
          .head_dim = shape.head_dim,
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim))),
          .alibi_bias_max = shape.positions == model::Positions::alibi ? kAlibiBiasMax : 0};
}

void rope(const Pass& pass, const Tensor& qkv, bool backward) {
  if (pass.shape().positions != model::Positions::rope) return;
  pass.emit(Rope{.shape = attention_shape(pass),
                 .qkv = qkv,
                 .theta = pass.shape().rope_theta,
                 .backward = backward});
}

// A norm of x without a residual addition.
NormForward norm(const Pass& pass, const std::string& name, const Tensor& x, const Tensor& y,
                 const Tensor& mean, const Tensor& rstd) {
  return {.kind = pass.shape().norm,
          .eps = static_cast<float>(pass.shape().norm_eps),
          .x = x,
          .y = y,
          .gain = pass.residual_parameter(name + ".gain"),
          .bias = pass.residual_parameter(name + ".bias"),
          .mean = mean,
          .rstd = rstd};
}

NormForward norm1(const Pass& pass, const Tensors& t) {
  return norm(pass, "norm1", t.x, t.norm1, t.mean1, t.rstd1);
}

bool fuses_gelu(const Pass& pass) {
  static_assert(memory::kGeluRowElements == kPreElements);
  return memory::fuses_gelu(pass.memory.config());
}

// Emits everything between norm1 and the MLP's last GEMM: attention, norm2, the MLP's first GEMM
// and the activation.
void middle(const Pass& pass, const Tensors& t) {
  pass.linear("qkv", t.norm1, t.qkv);
  rope(pass, t.qkv, false);
  pass.emit(AttentionForward{
      .shape = attention_shape(pass), .qkv = t.qkv, .out = t.attention, .lse = t.lse});
  pass.linear("out", t.attention, t.branch);
  NormForward second = norm(pass, "norm2", t.x, t.norm2, t.mean2, t.rstd2);
  second.add = t.branch;
  second.sum = t.mid;
  pass.emit(second);
  if (fuses_gelu(pass)) return pass.linear_gelu("up", t.norm2, t.up, t.act);
  pass.linear("up", t.norm2, t.up);
  pass.emit(ActForward{.kind = pass.shape().activation, .x = t.up, .y = t.act});
}

// dx += the gradient through the norm whose input was `sum`.
void norm_backward(const Pass& pass, const std::string& name, const Tensor& dy, const Tensor& sum,
                   const Tensor& mean, const Tensor& rstd, const Tensor& dx) {
  pass.emit(NormBackward{.kind = pass.shape().norm,
                         .dy = dy,
                         .dsum_in = dx,
                         .sum = sum,
                         .gain = pass.residual_parameter(name + ".gain"),
                         .mean = mean,
                         .rstd = rstd,
                         .dsum = dx,
                         .dgain = pass.norm_gradient(name + ".gain", true),
                         .dbias = pass.norm_gradient(name + ".bias", false),
                         .partials = pass.partials(norm_partials(sum.rows, sum.cols)),
                         .accumulate = pass.accumulate});
}

}  // namespace

std::string block_input(const Memory& memory, std::int64_t layer) {
  return memory::block_buffer(memory.mask(), memory.config().offload, layer, "x",
                              memory::Made::forward);
}

std::string mid_name(const Memory& memory, std::int64_t layer) {
  return memory::block_buffer(memory.mask(), memory.config().offload, layer, "mid",
                              memory::Made::forward);
}

void block_forward(const Pass& pass, std::int64_t layer) {
  const Tensors t = tensors_of(pass, layer);
  NormForward first = norm1(pass, t);
  if (layer > 0) {
    first.x = pass.residual(mid_name(pass.memory, layer - 1));
    first.add = t.branch;
    first.sum = t.x;
  }
  pass.emit(first);
  middle(pass, t);
  pass.linear("down", t.act, t.branch);
}

void block_recompute(const Pass& pass, std::int64_t layer) {
  const Tensors t = tensors_of(pass, layer);
  pass.emit(norm1(pass, t));
  if (pass.memory.mask()[static_cast<std::size_t>(layer)] == memory::Keep::input)
    return middle(pass, t);
  pass.emit(norm(pass, "norm2", t.mid, t.norm2, t.mean2, t.rstd2));
  pass.emit(ActForward{.kind = pass.shape().activation, .x = t.up, .y = t.act});
}

void block_backward(const Pass& pass, std::int64_t layer) {
  const Tensors t = tensors_of(pass, layer);
  const Tensor dx = pass.residual("dx");
  const Tensor dnorm = pass.activation("dnorm", pass.width());
  const Tensor dattention = pass.activation("dnorm", pass.attention_width());
  const Tensor dact = pass.activation("dwide", pass.shape().ffn);
  const Tensor dqkv = pass.activation("dwide", pass.qkv_width());

  // SwiGLU's gradient of gate and up is twice as wide as dact, so it overwrites gate and up.
  const bool swiglu = pass.shape().activation == model::Activation::swiglu;
  const Tensor dup = swiglu ? t.up : dact;
  if (fuses_gelu(pass)) {
    pass.linear_backward("down", t.act, pass.low_precision(dx), dup, t.up);
  } else {
    pass.linear_backward("down", t.act, pass.low_precision(dx), dact);
    pass.emit(ActBackward{.kind = pass.shape().activation, .x = t.up, .dy = dact, .dx = dup});
  }
  pass.linear_backward("up", t.norm2, dup, dnorm);
  norm_backward(pass, "norm2", dnorm, t.mid, t.mean2, t.rstd2, dx);

  pass.linear_backward("out", t.attention, pass.low_precision(dx), dattention);
  pass.emit(AttentionBackward{
      .shape = attention_shape(pass),
      .qkv = t.qkv,
      .out = t.attention,
      .lse = t.lse,
      .dout = dattention,
      .dqkv = dqkv,
      .row_sum = pass.memory.tensor("row_sum", pass.sequences * pass.shape().n_heads,
                                    pass.seq_len(), DType::f32)});
  rope(pass, dqkv, true);
  pass.linear_backward("qkv", t.norm1, dqkv, dnorm);
  norm_backward(pass, "norm1", dnorm, t.x, t.mean1, t.rstd1, dx);
}

}  // namespace tessera::trainer
