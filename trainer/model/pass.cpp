#include "trainer/model/pass.h"

#include <fmt/format.h>

namespace tessera::trainer {

void Pass::linear(std::string_view name, const Tensor& x, const Tensor& y) const {
  emit(Gemm{.a = x,
            .b = parameter(fmt::format("{}.weight", name)),
            .d = y,
            .bias = parameter(fmt::format("{}.bias", name))});
}

void Pass::linear_backward(std::string_view name, const Tensor& x, const Tensor& dy,
                           const Tensor& dx) const {
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
  emit(Gemm{.a = dy, .b = parameter(weight), .d = dx, .transpose_b = false});
}

}  // namespace tessera::trainer
