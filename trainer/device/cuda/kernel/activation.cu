// SPDX-License-Identifier: Apache-2.0
// Activations: a grid-stride loop, one vector of elements a thread and iteration. y is rounded
// once, and so is dx (both halves of it for SwiGLU).
//
// At a GPU's bandwidth bf16 leaves about 25 instructions an element, so bf16 uses the hardware's
// approximations of exponentials and quotients, whose error is far below bf16's. f32 uses the exact
// functions.
#include "trainer/device/cuda/kernel/elements.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {
namespace {

using model::Activation;

constexpr int kThreads = 256;
// Occupancy: blocks that a multiprocessor has registers for. The grid has no more, so that all
// blocks end together.
template <bool kVectorized, class T>
constexpr int kOccupancy = !kVectorized               ? 3
                           : std::is_same_v<T, float> ? 4
                                                      : 6;
template <bool kVectorized, class T>
constexpr int kBackwardOccupancy = !kVectorized               ? 3
                                   : std::is_same_v<T, float> ? 4
                                                              : 5;

template <class T>
SIMT_FUNCTION float exp_of(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return std::exp(x);
  } else {
    return exp2_approx(x * 1.44269504088896F);
  }
}

template <class T>
SIMT_FUNCTION float inverse_of(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return 1 / x;
  } else {
    return reciprocal_approx(x);
  }
}

template <class T>
SIMT_FUNCTION float sigmoid(float x) {
  return inverse_of<T>(1 + exp_of<T>(-x));
}

// The normal distribution function (1 + erf(x / sqrt 2)) / 2, and exp(-x^2 / 2), which its
// derivative needs too. erfc(z) = exp(-z^2) t q(t) with t = 1 / (1 + 0.38 z), as in the CPU's
// kernels (trainer/device/cpu/kernel/math.h). The relative error is 1e-6 for x > -5.
struct NormalCdf {
  float cdf;
  float gauss;
};
template <class T>
SIMT_FUNCTION NormalCdf normal_cdf(float x) {
  const float t =
      inverse_of<T>(1 + std::fabs(x) * static_cast<float>(0.38 * 0.70710678118654752440));
  float q = 0.0586995131F;
  q = q * t - 0.26111545F;
  q = q * t + 0.361755908F;
  q = q * t - 0.15942701F;
  q = q * t + 0.2289011F;
  q = q * t + 0.139002157F;
  q = q * t + 0.20385035F;
  q = q * t + 0.21392238F;
  q = q * t + 0.214411067F;
  const float gauss = exp_of<T>(-0.5F * x * x);
  const float tail = 0.5F * gauss * t * q;
  return {x < 0 ? tail : 1 - tail, gauss};
}

// gelu_tanh(x) = x (1 + tanh u) / 2 = x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
constexpr float kTwiceSqrt2OverPi = 1.59576912160573071176F;
constexpr float kCubic = static_cast<float>(1.59576912160573071176 * 0.044715);
template <class T>
SIMT_FUNCTION float tanh_gate(float x) {
  return sigmoid<T>(x * (kTwiceSqrt2OverPi + kCubic * x * x));
}

// f(x) and f'(x) of the activations that take one input.
template <Activation kKind, class T>
SIMT_FUNCTION float value_at(float x) {
  if constexpr (kKind == Activation::gelu_erf) {
    return x * normal_cdf<T>(x).cdf;
  } else {
    return x * tanh_gate<T>(x);
  }
}
template <Activation kKind, class T>
SIMT_FUNCTION float slope_at(float x) {
  if constexpr (kKind == Activation::gelu_erf) {
    const NormalCdf normal = normal_cdf<T>(x);
    return normal.cdf + x * normal.gauss * 0.39894228040143267794F;
  } else {
    const float gate = tanh_gate<T>(x);
    return gate + x * gate * (1 - gate) * (kTwiceSqrt2OverPi + 3 * kCubic * x * x);
  }
}

template <bool kVectorized, Activation kKind, class T>
SIMT_KERNEL(kThreads, (kOccupancy<kVectorized, T>))
void act_forward(GridStrideLoop loop, Rows<const T> x, Rows<T> y) {
  loop.each_vector<kThreads>([&](std::int64_t row, std::int64_t col, std::int64_t remaining) {
    const T* const from = x.row(row) + col;
    float value[kVecSize];
    load<kVectorized>(from, remaining, value);
    if constexpr (kKind == Activation::swiglu) {
      float up[kVecSize];
      load<kVectorized>(from + loop.cols, remaining, up);
      SIMT_UNROLL
      for (int i = 0; i < kVecSize; ++i) value[i] *= sigmoid<T>(value[i]) * up[i];
    } else {
      SIMT_UNROLL
      for (int i = 0; i < kVecSize; ++i) value[i] = value_at<kKind, T>(value[i]);
    }
    store<kVectorized>(y.row(row) + col, remaining, value);
  });
}

template <bool kVectorized, Activation kKind, class T>
SIMT_KERNEL(kThreads, (kBackwardOccupancy<kVectorized, T>))
void act_backward(GridStrideLoop loop, Rows<const T> x, Rows<const T> dy, Rows<T> dx) {
  loop.each_vector<kThreads>([&](std::int64_t row, std::int64_t col, std::int64_t remaining) {
    const T* const from = x.row(row) + col;
    T* const to = dx.row(row) + col;
    float value[kVecSize];
    float grad[kVecSize];
    load<kVectorized>(from, remaining, value);
    load<kVectorized>(dy.row(row) + col, remaining, grad);
    if constexpr (kKind == Activation::swiglu) {
      float up[kVecSize];
      load<kVectorized>(from + loop.cols, remaining, up);
      SIMT_UNROLL
      for (int i = 0; i < kVecSize; ++i) {
        const float gate = sigmoid<T>(value[i]);
        const float slope = gate * (1 + value[i] * (1 - gate));
        value[i] *= grad[i] * gate;
        grad[i] *= up[i] * slope;
      }
      store<kVectorized>(to + loop.cols, remaining, value);
    } else {
      SIMT_UNROLL
      for (int i = 0; i < kVecSize; ++i) grad[i] *= slope_at<kKind, T>(value[i]);
    }
    store<kVectorized>(to, remaining, grad);
  });
}

// Calls f.operator()<kKind>().
template <class F>
void with_kind(Activation kind, F&& f) {
  switch (kind) {
    case Activation::gelu_erf:
      return f.template operator()<Activation::gelu_erf>();
    case Activation::gelu_tanh:
      return f.template operator()<Activation::gelu_tanh>();
    case Activation::swiglu:
      return f.template operator()<Activation::swiglu>();
  }
}

// The loop over y, or over the half of x that is as wide as y: SwiGLU's halves of several rows are
// not contiguous.
GridStrideLoop loop_of_act(Activation kind, std::initializer_list<const Tensor*> y_first) {
  const Tensor& y = **y_first.begin();
  return kind == Activation::swiglu ? GridStrideLoop{y.rows, y.cols} : grid_stride_loop(y_first);
}

}  // namespace

void run(const ActForward& op, const Launch& where) {
  with_vectorization(is_vectorizable({&op.x, &op.y}), [&]<bool kVectorized>() {
    with_kind(op.kind, [&]<Activation kKind>() {
      with_storage(op.x.dtype, [&]<class T>() {
        const GridStrideLoop loop = loop_of_act(kKind, {&op.y, &op.x});
        launch("act_forward", act_forward<kVectorized, kKind, T>,
               loop.grid(kThreads, where, kOccupancy<kVectorized, T>), kThreads, where, loop,
               rows_of<const T>(op.x), rows_of<T>(op.y));
      });
    });
  });
}

void run(const ActBackward& op, const Launch& where) {
  with_vectorization(is_vectorizable({&op.x, &op.dy, &op.dx}), [&]<bool kVectorized>() {
    with_kind(op.kind, [&]<Activation kKind>() {
      with_storage(op.x.dtype, [&]<class T>() {
        const GridStrideLoop loop = loop_of_act(kKind, {&op.dy, &op.x, &op.dx});
        launch("act_backward", act_backward<kVectorized, kKind, T>,
               loop.grid(kThreads, where, kBackwardOccupancy<kVectorized, T>), kThreads, where,
               loop, rows_of<const T>(op.x), rows_of<const T>(op.dy), rows_of<T>(op.dx));
      });
    });
  });
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
