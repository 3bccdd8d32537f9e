// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/pass.h"

#include <fmt/format.h>

namespace tessera::trainer {

void Pass::linear(std::string_view name, const Tensor& x, const Tensor& y) const {
  emit(Gemm{.a = x,
            .b = parameter(fmt::format("{}.weight", name)),
            .d = y,
            .bias = parameter(fmt::format("{}.bias", name))});
}

void Pass::linear_gelu(std::string_view name, const Tensor& x, const Tensor& pre,
                       const Tensor& y) const {
  emit(Gemm{.a = x,
            .b = parameter(fmt::format("{}.weight", name)),
            .d = y,
            .bias = parameter(fmt::format("{}.bias", name)),
            .epilogue = GemmEpilogue::gelu,
            .pre = pre});
}

Tensor Pass::norm_gradient(std::string_view name, bool is_gain) const {
  if (const Tensor trained = gradient(name)) return trained;
  if (!is_gain && !parameter(name)) return {};  // the model has no such bias
  Tensor both = memory.tensor("discarded", 2, width(), DType::f32);
  both.data = static_cast<float*>(both.data) + (is_gain ? 0 : width());
  both.rows = 1;
  return both;
}

Tensor Pass::low_precision(const Tensor& dx) const {
  if (dx.dtype == memory.compute()) return dx;
  const Tensor low = activation("dx.low", width());
  emit(Cast{.src = dx, .dst = low});
  return low;
}

void Pass::linear_backward(std::string_view name, const Tensor& x, const Tensor& dy,
                           const Tensor& dx, const Tensor& pre) const {
  const std::string weight = fmt::format("{}.weight", name);
  const std::string bias = fmt::format("{}.bias", name);
  if (const Tensor dbias = gradient(bias)) {
    emit(BiasGrad{.dy = dy,
                  .dbias = dbias,
                  .partials = partials(bias_grad_partials(dy.rows, dy.cols)),
                  .accumulate = accumulate});
  }
  if (const Tensor dweight = gradient(weight)) {
    emit(Gemm{.a = dy,
              .b = x,
              .d = dweight,
              .transpose_a = true,
              .transpose_b = false,
              .accumulate = accumulate});
  }
  emit(Gemm{.a = dy,
            .b = parameter(weight),
            .d = dx,
            .transpose_b = false,
            .epilogue = pre ? GemmEpilogue::dgelu : GemmEpilogue::none,
            .pre = pre});
}

}  // namespace tessera::trainer
