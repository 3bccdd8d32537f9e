// SPDX-License-Identifier: Apache-2.0
// Vectors of the ISA that this file is compiled for, as the compiler's vector types. Everything is
// in an unnamed namespace, so that no other object file can share it.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "trainer/device/cpu/kernels.h"

#define TESSERA_INLINE inline __attribute__((always_inline))

namespace tessera::trainer::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

using VectorF = float __attribute__((vector_size(kVectorBytes)));
using VectorD = double __attribute__((vector_size(kVectorBytes)));
using VectorU = std::uint32_t __attribute__((vector_size(kVectorBytes)));
using VectorI = std::int32_t __attribute__((vector_size(kVectorBytes)));
using VectorH = std::uint16_t __attribute__((vector_size(kVectorBytes / 2)));

template <class C>
struct VectorOf;
template <>
struct VectorOf<float> {
  using Type = VectorF;
};
template <>
struct VectorOf<double> {
  using Type = VectorD;
};
template <class C>
using Vector = typename VectorOf<C>::Type;
template <class C>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(C));

template <class C>
TESSERA_INLINE Vector<C> broadcast(C x) {
  return x - Vector<C>{};
}

TESSERA_INLINE VectorF widen(VectorH x) {
  const VectorU bits = __builtin_convertvector(x, VectorU) << 16;
  VectorF result;
  __builtin_memcpy(&result, &bits, sizeof(result));
  return result;
}

// Rounds to nearest even. A NaN stays a NaN (its high half with the quiet bit).
TESSERA_INLINE VectorH narrow(VectorF x) {
  VectorU bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  const VectorU rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const VectorU quiet = (bits >> 16) | 0x40U;
  const VectorU chosen = x == x ? rounded : quiet;
#if defined(__AVX512F__)
  const __m256i half = _mm512_maskz_cvtepi32_epi16(0xFFFF, reinterpret_cast<__m512i>(chosen));
  VectorH result;
  __builtin_memcpy(&result, &half, sizeof(result));
  return result;
#elif defined(__AVX2__)
  const __m256i whole = reinterpret_cast<__m256i>(chosen);
  const __m128i half =
      _mm_packus_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
  VectorH result;
  __builtin_memcpy(&result, &half, sizeof(result));
  return result;
#else
  const __m128i whole = reinterpret_cast<__m128i>(chosen);
  const __m128i half = _mm_packus_epi32(whole, whole);
  VectorH result;
  __builtin_memcpy(&result, &half, sizeof(result));
  return result;
#endif
}

TESSERA_INLINE VectorF square_root(VectorF x) {
#if defined(__AVX512F__)
  return _mm512_maskz_sqrt_ps(0xFFFF, x);  // maskz: the plain form warns in GCC 12
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(x);
#else
  return _mm_sqrt_ps(x);
#endif
}

// Loads all lanes, or the first `count` and 0 in the others. It reads count elements, no more.
template <class C>
TESSERA_INLINE Vector<C> load(const C* p, int count = kLanes<C>) {
  Vector<C> result = {};
  if (count == kLanes<C>) {
    __builtin_memcpy(&result, p, sizeof(result));
  } else {
    C lanes[kLanes<C>] = {};
    for (int i = 0; i < count; ++i) lanes[i] = p[i];
    __builtin_memcpy(&result, lanes, sizeof(result));
  }
  return result;
}

TESSERA_INLINE VectorF load(const Bf16* p, int count = kLanes<float>) {
  VectorH result = {};
  if (count == kLanes<float>) {
    __builtin_memcpy(&result, p, sizeof(result));
  } else {
    std::uint16_t lanes[kLanes<float>] = {};
    for (int i = 0; i < count; ++i) lanes[i] = p[i].bits;
    __builtin_memcpy(&result, lanes, sizeof(result));
  }
  return widen(result);
}

template <class C>
TESSERA_INLINE void store(C* p, Vector<C> x, int count = kLanes<C>) {
  if (count == kLanes<C>) {
    __builtin_memcpy(p, &x, sizeof(x));
  } else {
    C lanes[kLanes<C>];
    __builtin_memcpy(lanes, &x, sizeof(x));
    for (int i = 0; i < count; ++i) p[i] = lanes[i];
  }
}

TESSERA_INLINE void store(Bf16* p, VectorF x, int count = kLanes<float>) {
  const VectorH half = narrow(x);
  if (count == kLanes<float>) {
    __builtin_memcpy(p, &half, sizeof(half));
  } else {
    std::uint16_t lanes[kLanes<float>];
    __builtin_memcpy(lanes, &half, sizeof(half));
    for (int i = 0; i < count; ++i) p[i].bits = lanes[i];
  }
}

// Returns x as `store` would have rounded it.
template <class S>
TESSERA_INLINE Vector<Compute<S>> rounded(Vector<Compute<S>> x) {
  if constexpr (sizeof(S) == sizeof(Bf16)) {
    return widen(narrow(x));
  } else {
    return x;
  }
}

// Keeps the first `count` lanes; the others become 0.
template <class C>
TESSERA_INLINE Vector<C> first_lanes(Vector<C> x, int count) {
  if (count == kLanes<C>) return x;
  for (int i = count; i < kLanes<C>; ++i) x[i] = 0;
  return x;
}

// Sums the lanes in a fixed order: one half onto the other.
template <class C>
TESSERA_INLINE C sum_lanes(Vector<C> x) {
  C lanes[kLanes<C>];
  __builtin_memcpy(lanes, &x, sizeof(x));
  for (int width = kLanes<C> / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

// std::max of all lanes. A NaN may be lost here; the exp that follows keeps it.
template <class C>
TESSERA_INLINE C max_lanes(Vector<C> x) {
  C result = x[0];
  for (int i = 1; i < kLanes<C>; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

// Prefetches what a single stream from memory will need soon: the hardware looks ahead too little
// for one. An address beyond the end does nothing.
template <class S>
TESSERA_INLINE void prefetch(const S* p) {
  constexpr int kAheadBytes = 4096;
  __builtin_prefetch(reinterpret_cast<const char*>(p) + kAheadBytes);
}

// Calls f(first element, lanes in use) for whole vectors, then for the tail.
template <class C, class F>
TESSERA_INLINE void for_vectors(std::int64_t n, F f) {
  std::int64_t i = 0;
  for (; i + kLanes<C> <= n; i += kLanes<C>) f(i, kLanes<C>);
  if (i < n) f(i, static_cast<int>(n - i));
}

}  // namespace
}  // namespace tessera::trainer::cpu
