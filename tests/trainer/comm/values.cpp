// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/comm/values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace tessera::trainer::test {
namespace {

constexpr std::byte kGuard{0xa5};

// Guard elements before the first and after the last. Their number is odd, so that tensors begin at
// no boundary of a cache line or vector.
constexpr std::int64_t kGuardElements = 33;

}  // namespace

const char* name_of(DType dtype) {
  return dtype == DType::f64 ? "f64" : dtype == DType::f32 ? "f32" : "bf16";
}

double round_to(DType dtype, double x) {
  if (dtype == DType::f64) return x;
  if (dtype == DType::f32) return static_cast<double>(static_cast<float>(x));
  if (!std::isfinite(x)) return x;
  constexpr int kBits = 8;  // of bf16's significand, with the hidden one
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  exponent = std::max(exponent, -125);  // subnormal below 2^-126
  const double unit = std::ldexp(1, exponent - kBits);
  const double result = std::nearbyint(std::ldexp(fraction, std::ilogb(x) + 1) / unit) * unit;
  if (x == 0) return x;
  const double largest = std::ldexp(255, 127 - 7);
  return std::abs(result) > largest ? std::copysign(INFINITY, x) : result;
}

Flat::Flat(DType dtype, std::int64_t elements)
    : dtype_(dtype),
      elements_(elements),
      memory_(static_cast<std::size_t>((elements + 2 * kGuardElements) * bytes_of(dtype)), kGuard) {
}

Flat Flat::of(DType dtype, const std::vector<double>& values) {
  Flat flat(dtype, static_cast<std::int64_t>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) flat.set(static_cast<std::int64_t>(i), values[i]);
  return flat;
}

std::byte* Flat::element(std::int64_t i) {
  return memory_.data() + (kGuardElements + i) * bytes_of(dtype_);
}
const std::byte* Flat::element(std::int64_t i) const {
  return memory_.data() + (kGuardElements + i) * bytes_of(dtype_);
}

Tensor Flat::slice(std::int64_t first, std::int64_t elements) {
  return {element(first), dtype_, 1, elements, elements};
}

void Flat::set(std::int64_t i, double value) {
  const double rounded = round_to(dtype_, value);
  const auto narrow = static_cast<float>(rounded);
  if (dtype_ == DType::f64) {
    std::memcpy(element(i), &rounded, sizeof(rounded));
  } else if (dtype_ == DType::f32) {
    std::memcpy(element(i), &narrow, sizeof(narrow));
  } else {  // the upper half; a bf16 value has zeros in the lower
    const auto half = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(narrow) >> 16);
    std::memcpy(element(i), &half, sizeof(half));
  }
}

double Flat::at(std::int64_t i) const {
  if (dtype_ == DType::f64) {
    double x = 0;
    std::memcpy(&x, element(i), sizeof(x));
    return x;
  }
  if (dtype_ == DType::f32) {
    float x = 0;
    std::memcpy(&x, element(i), sizeof(x));
    return static_cast<double>(x);
  }
  std::uint16_t half = 0;
  std::memcpy(&half, element(i), sizeof(half));
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16));
}

std::string Flat::bytes() const {
  return {reinterpret_cast<const char*>(element(0)),
          static_cast<std::size_t>(elements_ * bytes_of(dtype_))};
}

bool Flat::guards_are_whole() const {
  const std::ptrdiff_t bytes = kGuardElements * bytes_of(dtype_);
  const auto is_guard = [](std::byte b) { return b == kGuard; };
  return std::all_of(memory_.begin(), memory_.begin() + bytes, is_guard) &&
         std::all_of(memory_.end() - bytes, memory_.end(), is_guard);
}

double number(std::uint64_t seed, std::int64_t i) {
  std::uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(i);
  for (int round = 0; round < 2; ++round) {
    x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9U;
    x ^= x >> 29;
  }
  const double magnitude =
      std::ldexp(1 + static_cast<double>(x >> 12) * 0x1p-52, static_cast<int>(x % 24) - 12);
  return (x >> 8 & 1U) != 0 ? -magnitude : magnitude;
}

double sum_in_order(DType dtype, const std::vector<double>& values) {
  const DType in = dtype == DType::f64 ? DType::f64 : DType::f32;
  double sum = values.front();
  // Both terms are of dtype `in`. A sum in f64 of two f32 numbers, rounded to f32, is their f32 sum
  // (53 >= 2 x 24 + 2 bits).
  for (std::size_t i = 1; i < values.size(); ++i) sum = round_to(in, sum + values[i]);
  return round_to(dtype, sum);
}

}  // namespace tessera::trainer::test
