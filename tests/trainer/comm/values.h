// SPDX-License-Identifier: Apache-2.0
// Tensors of numbers in host memory, and the arithmetic that sums are checked against, written from
// the definitions of the formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/device/ops.h"

namespace tessera::trainer::test {

const char* name_of(DType dtype);

// Returns the nearest value of the dtype, ties to even.
double round_to(DType dtype, double x);

// A flat tensor between guards, aligned to its dtype and no more.
class Flat {
 public:
  Flat(DType dtype, std::int64_t elements);
  static Flat of(DType dtype, const std::vector<double>& values);

  Tensor tensor() { return slice(0, elements_); }
  Tensor slice(std::int64_t first, std::int64_t elements);
  void set(std::int64_t i, double value);  // rounds
  double at(std::int64_t i) const;
  std::string bytes() const;  // of the elements
  bool guards_are_whole() const;

 private:
  std::byte* element(std::int64_t i);
  const std::byte* element(std::int64_t i) const;

  DType dtype_;
  std::int64_t elements_;
  std::vector<std::byte> memory_;
};

// Returns numbers of many magnitudes and both signs, so that the order of a sum shows in its bits.
double number(std::uint64_t seed, std::int64_t i);

// Returns ((x0 + x1) + x2) + ... in the dtype that sums of `dtype` use, rounded once to `dtype`.
double sum_in_order(DType dtype, const std::vector<double>& values);

}  // namespace tessera::trainer::test
