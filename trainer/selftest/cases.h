// SPDX-License-Identifier: Apache-2.0
// The one table of operations that every device must execute alike, and that the benchmark
// measures. A case builds tensors and the operations on them, forward before backward; what it says
// of gradients is checked by finite differences on the CPU's f64 instance, which is then the
// reference for f32, bf16 and other devices.
//
// Tests and `trainer --selftest` check every case; `trainer --bench-ops` measures those operations
// that a case names in `timed`, at the sizes of a real model (decoder_cases).
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

  // An operation that the benchmark measures, once those before it in the case have run.
  struct Timed {
    std::size_t op = 0;        // its place in the case
    std::string variant;       // "gelu_erf", "dW": which of a kind's
    DType dtype = DType::f32;  // in results: of the activations, f32 where there are none
    DType arena = DType::f32;  // of the arena in which the case is built
  };
  std::vector<Timed> timed = {};
  // Marks an operation, with activations in f32 and in bf16.
  void time(std::size_t op, const std::string& variant = {}) {
    for (const DType dtype : {DType::f32, DType::bf16})
      timed.push_back({op, variant, dtype, dtype});
  }
};

// Returns the table: sizes at which kernels turn, then decoder_cases of a small shape.
const std::vector<Case>& cases();

// The sizes of a decoder's operations. The defaults are those of MPT's 125m.
struct DecoderShape {
  std::int64_t d_model = 768;
  std::int64_t q_heads = 12;
  std::int64_t kv_heads = 12;
  std::int64_t head_dim = 64;
  std::int64_t ffn = 3072;
  std::int64_t vocab = 50368;  // padded to 128 in memory
  std::int64_t seq = 512;
  std::int64_t sequences = 4;    // at once
  std::int64_t head_rows = 512;  // of logits at once
  bool fused_gelu = false;       // products do the GELU: those are in it, too

  std::int64_t rows() const { return seq * sequences; }
  // Elements of the matrices of one block.
  std::int64_t block_elements() const {
    return d_model * ((2 * q_heads + 2 * kv_heads) * head_dim + 2 * ffn);
  }
};

// Returns what a decoder's block, head and optimizer do, on rows without gaps: every alternative of
// Op, each of them timed at least once.
std::vector<Case> decoder_cases(const DecoderShape& shape);

// The parts of them that are products, attention and positions, norms and sums over rows.
std::vector<Case> gemm_cases();
std::vector<Case> attention_cases();
std::vector<Case> norm_cases();
std::vector<Case> decoder_gemm_cases(const DecoderShape& shape);
std::vector<Case> decoder_attention_cases(const DecoderShape& shape);
std::vector<Case> decoder_norm_cases(const DecoderShape& shape);

// Attention that cuDNN takes, in bf16: larger than those of the table.
std::vector<Case> fused_attention_cases();

}  // namespace tessera::trainer::test
