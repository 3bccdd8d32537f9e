// SPDX-License-Identifier: Apache-2.0
// Shared by the emitters of a microbatch's operations.
#pragma once

#include <string_view>

#include "trainer/model/memory.h"
#include "trainer/model/sequence.h"

namespace tessera::trainer {

// Emits the operations of one action of the schedule. Activations are [rows, width] in
// memory.compute(); statistics and gradients of parameters are f32.
struct Pass {
  const Memory& memory;
  Sequence& out;
  std::int64_t sequences = 0;  // of the microbatch
  bool accumulate = false;     // gradients are added to: not the step's first microbatch
  // of the action
  std::int64_t unit = 0;
  Phase phase = Phase::forward;
  int tick = 0;

  const model::Shape& shape() const { return memory.config().shape; }
  std::int64_t seq_len() const { return memory.config().seq_len; }
  std::int64_t rows() const { return sequences * seq_len(); }
  std::int64_t width() const { return shape().d_model; }
  std::int64_t attention_width() const { return model::attention_width(shape()); }
  std::int64_t qkv_width() const { return model::qkv_width(shape()); }

  void emit(const Work& work, Stream stream = Stream::compute) const {
    out.push_back({work, static_cast<std::int16_t>(unit), phase, tick, stream});
  }
  Tensor activation(std::string_view buffer, std::int64_t cols) const {
    return memory.tensor(buffer, rows(), cols, memory.compute());
  }
  // A buffer of the residual stream, [rows, d_model].
  Tensor residual(std::string_view buffer) const {
    return memory.tensor(buffer, rows(), width(), memory.residual());
  }
  Tensor statistic(std::string_view buffer) const {
    return memory.tensor(buffer, 1, rows(), DType::f32);
  }
  Tensor parameter(std::string_view name) const { return memory.parameter(unit, name); }
  Tensor residual_parameter(std::string_view name) const {
    return memory.residual_parameter(unit, name);
  }
  Tensor gradient(std::string_view name) const { return memory.gradient(unit, name); }
  // Returns where the gradient of a norm's gain ("norm1.gain") or bias goes: to scratch if that
  // parameter is not trained.
  Tensor norm_gradient(std::string_view name, bool is_gain) const;
  // Returns the residual stream's gradient in the activations' dtype: itself, or rounded into a
  // buffer.
  Tensor low_precision(const Tensor& dx) const;
  // Returns f32 scratch of `elements`.
  Tensor partials(std::int64_t elements) const {
    return memory.tensor("partials", 1, elements, DType::f32);
  }

  // Emits y = x W^T + b of the linear layer `name`.
  void linear(std::string_view name, const Tensor& x, const Tensor& y) const;
  // Emits pre = x W^T + b and y = gelu_tanh(pre) as one GEMM.
  void linear_gelu(std::string_view name, const Tensor& x, const Tensor& pre,
                   const Tensor& y) const;
  // Emits gradients of W and b, if they are trained, and dx = dy W. With `pre`, x is gelu_tanh(pre)
  // and dx is the gradient of pre.
  void linear_backward(std::string_view name, const Tensor& x, const Tensor& dy, const Tensor& dx,
                       const Tensor& pre = {}) const;
};

}  // namespace tessera::trainer
