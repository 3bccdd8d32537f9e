// SPDX-License-Identifier: Apache-2.0
// Kernels without reductions over a row, and plain sums.
#pragma once

#include "trainer/device/cpu/kernel/math.h"

namespace tessera::trainer::cpu {
namespace {

template <class S>
void load_all(const S* src, Compute<S>* dst, std::int64_t n) {
  using C = Compute<S>;
  for_vectors<C>(n, [&](std::int64_t i, int count) __attribute__((always_inline)) {
    store(dst + i, load(src + i, count), count);
  });
}

template <class S>
void store_all(const Compute<S>* src, const S* bias, S* dst, std::int64_t n, bool accumulate) {
  using C = Compute<S>;
  if (bias == nullptr && !accumulate) {
    for_vectors<C>(n, [&](std::int64_t i, int count) __attribute__((always_inline)) {
      store(dst + i, load(src + i, count), count);
    });
    return;
  }
  for_vectors<C>(n, [&](std::int64_t i, int count) __attribute__((always_inline)) {
    Vector<C> x = load(src + i, count);
    if (bias != nullptr) x += load(bias + i, count);
    if (accumulate) x += load(dst + i, count);
    store(dst + i, x, count);
  });
}

template <class S>
void add_to(const S* src, Compute<S>* dst, std::int64_t n) {
  using C = Compute<S>;
  for_vectors<C>(n, [&](std::int64_t i, int count) __attribute__((always_inline)) {
    store(dst + i, load(dst + i, count) + load(src + i, count), count);
  });
}

template <class S>
void add(const S* a, const S* b, S* y, std::int64_t n) {
  using C = Compute<S>;
  for_vectors<C>(n, [&](std::int64_t i, int count) __attribute__((always_inline)) {
    store(y + i, load(a + i, count) + load(b + i, count), count);
  });
}

template <class C>
void multiply(C* x, C factor, std::int64_t n) {
  for_vectors<C>(n, [&](std::int64_t i, int count) __attribute__((always_inline)) {
    store(x + i, load(x + i, count) * factor, count);
  });
}

// The part `Part` of x widened to f64: an f32 vector fills two f64 vectors.
template <int Part>
TESSERA_INLINE VectorD widened(VectorF x) {
  using Half = float __attribute__((vector_size(kVectorBytes / 2)));
  Half half;
  __builtin_memcpy(&half, reinterpret_cast<const char*>(&x) + Part * sizeof(half), sizeof(half));
  return __builtin_convertvector(half, VectorD);
}

// Squares are f64: in f32 they would overflow from 1.8e19 on.
template <class S>
double sum_of_squares(const S* x, std::int64_t n) {
  using C = Compute<S>;
  VectorD sum0 = {};
  VectorD sum1 = {};
  for_vectors<C>(n, [&](std::int64_t i, int count) __attribute__((always_inline)) {
    prefetch(x + i);
    const Vector<C> v = load(x + i, count);
    if constexpr (sizeof(C) == sizeof(double)) {
      sum0 += v * v;
    } else {
      const VectorD low = widened<0>(v);
      const VectorD high = widened<1>(v);
      sum0 += low * low;
      sum1 += high * high;
    }
  });
  return sum_lanes<double>(sum0) + sum_lanes<double>(sum1);
}

template <class S>
Compute<S> dot(const S* a, const S* b, std::int64_t n) {
  using C = Compute<S>;
  Vector<C> sum = {};
  for_vectors<C>(n, [&](std::int64_t i, int count) __attribute__((always_inline)) {
    sum += load(a + i, count) * load(b + i, count);
  });
  return sum_lanes<C>(sum);
}

// gelu_tanh(x) = x (1 + tanh u) / 2 = x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3). The
// form with sigmoid avoids tanh's cancellation.
constexpr double kTwiceSqrt2OverPi = 1.59576912160573071176;
constexpr double kCubic = 0.044715;

template <class C>
TESSERA_INLINE Vector<C> tanh_gate(Vector<C> x) {
  return sigmoid(
      x * (static_cast<C>(kTwiceSqrt2OverPi) + static_cast<C>(kTwiceSqrt2OverPi * kCubic) * x * x));
}

// Rounds y once.
template <class S>
void act_forward(Act act, const S* x, const S* up, S* y, std::int64_t n) {
  using C = Compute<S>;
  switch (act) {
    case Act::gelu_erf:
      for_vectors<C>(n, [&](std::int64_t i, int count) __attribute__((always_inline)) {
        const Vector<C> v = load(x + i, count);
        store(y + i, v * normal_cdf(v).cdf, count);
      });
      break;
    case Act::gelu_tanh:
      for_vectors<C>(n, [&](std::int64_t i, int count) __attribute__((always_inline)) {
        const Vector<C> v = load(x + i, count);
        store(y + i, v * tanh_gate<C>(v), count);
      });
      break;
    case Act::swiglu:
      for_vectors<C>(n, [&](std::int64_t i, int count) __attribute__((always_inline)) {
        const Vector<C> v = load(x + i, count);
        store(y + i, v * sigmoid(v) * load(up + i, count), count);
      });
      break;
  }
}

// Rounds dx and dup once each.
template <class S>
void act_backward(Act act, const S* x, const S* up, const S* dy, S* dx, S* dup, std::int64_t n) {
  using C = Compute<S>;
  switch (act) {
    case Act::gelu_erf:
      for_vectors<C>(n, [&](std::int64_t i, int count) __attribute__((always_inline)) {
        const Vector<C> v = load(x + i, count);
        const auto normal = normal_cdf(v);
        const Vector<C> density = normal.gauss * static_cast<C>(0.39894228040143267794);
        store(dx + i, load(dy + i, count) * (normal.cdf + v * density), count);
      });
      break;
    case Act::gelu_tanh:
      for_vectors<C>(n, [&](std::int64_t i, int count) __attribute__((always_inline)) {
        const Vector<C> v = load(x + i, count);
        const Vector<C> gate = tanh_gate<C>(v);
        const Vector<C> inner = static_cast<C>(kTwiceSqrt2OverPi) +
                                static_cast<C>(3 * kTwiceSqrt2OverPi * kCubic) * v * v;
        store(dx + i, load(dy + i, count) * (gate + v * gate * (1 - gate) * inner), count);
      });
      break;
    case Act::swiglu:
      for_vectors<C>(n, [&](std::int64_t i, int count) __attribute__((always_inline)) {
        const Vector<C> v = load(x + i, count);
        const Vector<C> other = load(up + i, count);
        const Vector<C> grad = load(dy + i, count);
        const Vector<C> gate = sigmoid(v);
        store(dup + i, grad * v * gate, count);
        store(dx + i, grad * other * gate * (1 + v * (1 - gate)), count);
      });
      break;
  }
}

// AdamW (Loshchilov and Hutter 2019): theta <- theta - lr (weight_decay theta + (m / bias1) /
// (sqrt(v / bias2) + eps)), all in f32. m, v and theta are rounded once each to f32, and theta once
// more to param.
template <class S>
void adamw(const AdamWRange& r, S* param) {
  const float grad_part1 = 1 - r.beta1;
  const float grad_part2 = 1 - r.beta2;
  const float inverse1 = 1 / r.bias1;
  const float inverse2 = 1 / r.bias2;
  const float keep = 1 - r.lr * r.weight_decay;
  for_vectors<float>(r.n, [&](std::int64_t i, int count) __attribute__((always_inline)) {
    prefetch(r.grad + i);
    prefetch(r.m + i);
    prefetch(r.v + i);
    prefetch(r.master + i);
    const VectorF g = load(r.grad + i, count) * r.clip;
    const VectorF m = load(r.m + i, count) * r.beta1 + g * grad_part1;
    const VectorF v = load(r.v + i, count) * r.beta2 + g * g * grad_part2;
    const VectorF update = (m * inverse1) / (square_root(v * inverse2) + r.eps);
    const VectorF theta = load(r.master + i, count) * keep - update * r.lr;
    store(r.m + i, m, count);
    store(r.v + i, v, count);
    store(r.master + i, theta, count);
    if (param != nullptr) store(param + i, theta, count);
  });
}

template <class C, class F>
TESSERA_INLINE void map(const C* x, C* y, std::int64_t n, F f) {
  for_vectors<C>(n, [&](std::int64_t i, int count) __attribute__((always_inline)) {
    store(y + i, f(load(x + i, count)), count);
  });
}

}  // namespace
}  // namespace tessera::trainer::cpu
