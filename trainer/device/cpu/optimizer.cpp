// SPDX-License-Identifier: Apache-2.0
// Gradient norm, clipping and AdamW. Parts and blocks have fixed sizes, so the bits do not depend
// on the number of threads.
#include <cmath>

#include "trainer/device/cpu/operations.h"
#include "trainer/device/cpu/typed.h"
#include "trainer/device/parts.h"

namespace tessera::trainer::cpu {

void run(const SquaredNorm& op, const Context& context) {
  with_storage(op.x.dtype, [&]<class S>() {
    const auto sum_of_squares = storage<S>(context.kernels).sum_of_squares;
    const std::int64_t n = op.x.rows * op.x.cols;
#pragma omp parallel for schedule(static)
    for (std::int64_t part = 0; part < squared_norm_partials(n); ++part) {
      const std::int64_t begin = part * kSquaredNormPart;
      op.partials[part] =
          sum_of_squares(elements<S>(op.x) + begin, std::min(kSquaredNormPart, n - begin));
    }
  });
}

// Sums in f64 in order. norm and clip are rounded once, to f32.
void run(const FinishNorm& op, const Context&) {
  double sum = 0;
  for (std::int64_t i = 0; i < op.count; ++i) sum += op.partials[i];
  const double norm = std::sqrt(sum);
  const auto limit = static_cast<double>(op.in->max_grad_norm);
  StepState& state = *op.state;
  state.grad_norm = static_cast<float>(norm);
  state.clip = limit > 0 && norm > limit ? static_cast<float>(limit / norm) : 1.0F;
  state.not_finite = std::isfinite(state.loss) && std::isfinite(state.grad_norm) ? 0 : 1;
}

void run(const AdamW& op, const Context& context) {
  if (op.state->not_finite != 0) return;
  const StepInputs& in = *op.in;
  const auto update = [&](std::int64_t begin, std::int64_t end, float weight_decay) {
    if (begin >= end) return;
    const AdamWRange range = {elements<const float>(op.grad) + begin,
                              elements<float>(op.master) + begin,
                              elements<float>(op.m) + begin,
                              elements<float>(op.v) + begin,
                              end - begin,
                              op.state->clip,
                              op.beta1,
                              op.beta2,
                              op.eps,
                              in.bias1,
                              in.bias2,
                              in.lr,
                              weight_decay};
    if (op.param && op.param.dtype == DType::bf16) {
      context.kernels.bf16.adamw(range, elements<Bf16>(op.param) + begin);
    } else {
      context.kernels.f32.adamw(range, op.param ? elements<float>(op.param) + begin : nullptr);
    }
  };
  for_blocks(1, op.master.cols, [&](std::int64_t, std::int64_t begin, std::int64_t n) {
    const std::int64_t decayed = std::clamp(op.decay_end, begin, begin + n);
    update(begin, decayed, in.weight_decay);
    update(decayed, begin + n, 0.0F);
  });
}

}  // namespace tessera::trainer::cpu
