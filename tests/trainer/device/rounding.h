// SPDX-License-Identifier: Apache-2.0
// Compares what a device stored with exact results that are rounded once.
//
// A device computes in f32, so what it rounds lies near the exact result, within `slack`. The
// stored element must then be no less than exact - slack and no more than exact + slack, each
// rounded to the tensor's dtype: one value for nearly all elements, bit by bit where slack is 0.
// Inputs that do not tell one rounding from another way would make such a check empty, so each
// names the ways that are wrong, and they must fail it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/trainer/device/each_device.h"
#include "trainer/selftest/arena.h"
#include "trainer/selftest/run_case.h"

namespace tessera::trainer::test {

struct Exact {
  DType dtype = DType::bf16;  // of the stored elements: bf16 or f32
  Values values = {};
  Values slack = {};  // by element; empty: 0
};

// Results of wrong implementations, by name.
using WrongWays = std::map<std::string, Values>;

// Checks that every stored element is `exact` rounded once. To show that the inputs can tell, at
// least one in twenty elements must differ from each wrong way and from `exact` cut off (f32:
// rounded to bf16).
void check_rounded_once(const Values& stored, const Exact& exact, const WrongWays& wrong = {});

// Element by element.
inline double added(double x, double y) {
  return x + y;
}
Values map(const Values& x, const std::function<double(double)>& f);
Values map(const Values& x, const Values& y, const std::function<double(double, double)>& f);
Values to_bf16(const Values& x);
Values to_f32(const Values& x);

// Returns normal numbers times `scale` plus `shift`, rounded to `dtype`.
Values normal(std::uint64_t seed, std::int64_t count, DType dtype, double scale = 1,
              double shift = 0);
// Returns whole numbers from -limit to limit.
Values whole(std::uint64_t seed, std::int64_t count, int limit);

// A device and tensors without gaps on it.
class Bench {
 public:
  explicit Bench(TestedDevice& tested) : tested_(tested) {}

  const TestedDevice& tested() const { return tested_; }

  Tensor in(DType dtype, std::int64_t rows, std::int64_t cols, const Values& values);
  Tensor out(DType dtype, std::int64_t rows, std::int64_t cols);  // NaN until written
  const StepInputs* inputs(const StepInputs& inputs);
  StepState* state();
  void run(const Op& op);
  static Values read(const Tensor& t);

 private:
  TestedDevice& tested_;
  HostMemory memory_;
};

// Calls f(bench) for each device that the program tests.
void with_each_bench(const std::function<void(Bench&)>& f);

}  // namespace tessera::trainer::test
