// The one table of operations that every device must execute alike. A case builds tensors and the
// operations on them, forward before backward; what it says of gradients is checked by finite
// differences on the CPU's f64 instance, which is then the reference for f32, bf16 and other
// devices.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/selftest/arena.h"

namespace tessera::trainer::test {

struct Case {
  std::string name;
  std::function<std::vector<Op>(Arena&)> build;

  // objective = sum over outputs of output * weight; d objective / d input = gradient. Tensors by
  // name; where the weight is "", it is `constant_weight`.
  struct Weighted {
    std::string output, weight;
  };
  struct Gradient {
    std::string input, gradient;
  };
  std::vector<Weighted> objective = {};
  std::vector<Gradient> gradients = {};
  double constant_weight = 1;

  // Largest ||x - reference|| / ||reference|| of a compared tensor.
  double f32_tolerance = 2e-6;
  double bf16_tolerance = 4e-3;
  bool has_f64 = true;  // else only finiteness and bits are compared
  bool slow = false;    // on the emulator: not run under the thread sanitizer, too
};

const std::vector<Case>& cases();

// The parts of them that are products, attention and positions, norms and sums over rows.
std::vector<Case> gemm_cases();
std::vector<Case> attention_cases();
std::vector<Case> norm_cases();

// Attention that cuDNN takes, in bf16: larger than those of the table.
std::vector<Case> fused_attention_cases();

}  // namespace tessera::trainer::test
