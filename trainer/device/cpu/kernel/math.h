// SPDX-License-Identifier: Apache-2.0
// exp, the normal distribution function and the logistic function on vectors. f32 uses polynomials
// of our own, so that no vector mathematics library is needed; f64, which only tests use, calls
// libm lane by lane.
//
// Relative errors in f32, checked against libm in f64 by math_test.cpp: exp 2e-7 if the result is
// normal (smaller results are 0, larger ones infinite), normal_cdf 1e-6 for x > -5 and 4e-6 down to
// -12, sigmoid 4e-7. A NaN gives a NaN.
#pragma once

#include "trainer/device/cpu/kernel/vector.h"

namespace tessera::trainer::cpu {
namespace {

TESSERA_INLINE VectorF power_of_two(VectorI n) {
  const VectorI bits = (n + 127) << 23;
  VectorF result;
  __builtin_memcpy(&result, &bits, sizeof(result));
  return result;
}

// exp(x) = 2^n exp(r) with |r| <= ln 2 / 2, where Taylor's polynomial of degree 7 has an error of
// 5e-9. 2^n is applied as two factors, because 2^128 is no float.
TESSERA_INLINE VectorF exp(VectorF x) {
  constexpr float kLowest = -87.33654F;  // below, the result would not be normal
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  VectorF clamped = x < kLowest ? broadcast(kLowest) : x;
  clamped = clamped > 89.0F ? broadcast(89.0F) : clamped;
  const VectorF shifted = clamped * 1.44269504088896F + kMagic;
  const VectorF n = shifted - kMagic;
  // ln 2 is split in two; the first part ends in zeros, so that n times it is exact (Cody and
  // Waite).
  const VectorF r = (clamped - n * 0.693145751953125F) - n * 1.42860682030941723e-6F;
  VectorI bits;
  __builtin_memcpy(&bits, &shifted, sizeof(bits));
  const VectorI exponent = bits - 0x4B400000;
  const VectorI half = exponent >> 1;
  VectorF p = broadcast(1.0F / 5040.0F);
  p = p * r + 1.0F / 720.0F;
  p = p * r + 1.0F / 120.0F;
  p = p * r + 1.0F / 24.0F;
  p = p * r + 1.0F / 6.0F;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const VectorF result = p * power_of_two(half) * power_of_two(exponent - half);
  return x < kLowest ? VectorF{} : result;
}

TESSERA_INLINE VectorD exp(VectorD x) {
  for (int i = 0; i < kLanes<double>; ++i) x[i] = __builtin_exp(x[i]);
  return x;
}

// The distribution function, and exp(-x^2 / 2), which its derivative needs too.
template <class V>
struct NormalCdf {
  V cdf;
  V gauss;
};

// erfc(z) = exp(-z^2) t Q(t), t = 1 / (1 + 0.38 z), z = |x| / sqrt 2. Q interpolates at Chebyshev's
// points of 0 <= z <= 12, with a relative error of 3e-8.
TESSERA_INLINE NormalCdf<VectorF> normal_cdf(VectorF x) {
  const VectorF magnitude = x < 0.0F ? -x : x;
  const VectorF t = 1.0F / (1.0F + magnitude * static_cast<float>(0.38 * 0.70710678118654752440));
  VectorF q = broadcast(0.0586995131F);
  q = q * t - 0.26111545F;
  q = q * t + 0.361755908F;
  q = q * t - 0.15942701F;
  q = q * t + 0.2289011F;
  q = q * t + 0.139002157F;
  q = q * t + 0.20385035F;
  q = q * t + 0.21392238F;
  q = q * t + 0.214411067F;
  const VectorF gauss = exp(-0.5F * x * x);
  const VectorF tail = 0.5F * gauss * t * q;
  return {x < 0.0F ? tail : 1.0F - tail, gauss};
}

TESSERA_INLINE NormalCdf<VectorD> normal_cdf(VectorD x) {
  NormalCdf<VectorD> result;
  for (int i = 0; i < kLanes<double>; ++i) {
    result.cdf[i] = 0.5 * __builtin_erfc(-x[i] * 0.70710678118654752440);
    result.gauss[i] = __builtin_exp(-0.5 * x[i] * x[i]);
  }
  return result;
}

template <class V>
TESSERA_INLINE V sigmoid(V x) {
  return 1 / (1 + exp(-x));
}

}  // namespace
}  // namespace tessera::trainer::cpu
