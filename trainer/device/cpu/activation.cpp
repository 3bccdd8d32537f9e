// SPDX-License-Identifier: Apache-2.0
// Activations, element by element. Rounded once: y; dx (both halves for SwiGLU).
#include "trainer/device/cpu/operations.h"
#include "trainer/device/cpu/typed.h"

namespace tessera::trainer::cpu {
namespace {

Act act(model::Activation kind) {
  switch (kind) {
    case model::Activation::gelu_tanh:
      return Act::gelu_tanh;
    case model::Activation::swiglu:
      return Act::swiglu;
    case model::Activation::gelu_erf:
      break;
  }
  return Act::gelu_erf;
}

}  // namespace

void run(const ActForward& op, const Context& context) {
  with_storage(op.x.dtype, [&]<class S>() {
    const auto forward = storage<S>(context.kernels).act_forward;
    const std::int64_t up = op.kind == model::Activation::swiglu ? op.y.cols : 0;
    for_blocks(op.y.rows, op.y.cols, [&](std::int64_t r, std::int64_t c, std::int64_t n) {
      const S* x = row<S>(op.x, r) + c;
      forward(act(op.kind), x, x + up, row<S>(op.y, r) + c, n);
    });
  });
}

void run(const ActBackward& op, const Context& context) {
  with_storage(op.x.dtype, [&]<class S>() {
    const auto backward = storage<S>(context.kernels).act_backward;
    const std::int64_t up = op.kind == model::Activation::swiglu ? op.dy.cols : 0;
    for_blocks(op.dy.rows, op.dy.cols, [&](std::int64_t r, std::int64_t c, std::int64_t n) {
      const S* x = row<S>(op.x, r) + c;
      S* dx = row<S>(op.dx, r) + c;
      backward(act(op.kind), x, x + up, row<S>(op.dy, r) + c, dx, dx + up, n);
    });
  });
}

}  // namespace tessera::trainer::cpu
