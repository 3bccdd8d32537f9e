// SPDX-License-Identifier: Apache-2.0
// Everything a GEMM depends on but its operands' addresses: an algorithm is chosen for a shape,
// plans have it as their key, and its text is the key of the cache file and of the log.
//
// D[m, n] (+)= op(A) op(B) (+ bias[n]), with an epilogue or without, matrices row-major as in
// trainer/device/ops.h, alpha 1, alone or in a strided batch. Sums are f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "trainer/device/ops.h"

namespace tessera::trainer::cuda {

// The alignment of allocations. Higher ones are not told apart.
inline constexpr int kGemmAlignment = 256;

struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;  // op(A) [m, k], op(B) [k, n]
  // Leading dimensions, in elements, of the matrices as they are stored: A [m, k], or [k, m] if
  // transposed; B [k, n], or [n, k] if transposed.
  std::int64_t lda = 0, ldb = 0, ldd = 0;
  bool transpose_a = false;
  bool transpose_b = true;
  DType in = DType::bf16;   // of A and B: f32 or bf16
  DType out = DType::bf16;  // of D: the same, or f32
  bool tf32 = false;        // f32 factors may be rounded to TF32
  bool accumulate = false;
  bool bias = false;  // of dtype `out`
  GemmEpilogue epilogue = GemmEpilogue::none;
  // GEMMs in the batch, and the strides between their matrices in elements; 0 for A or B: shared.
  std::int64_t batch = 1;
  std::int64_t stride_a = 0, stride_b = 0, stride_d = 0;
  // Alignment of the pointers in bytes: powers of two, at most kGemmAlignment.
  int align_a = kGemmAlignment, align_b = kGemmAlignment, align_d = kGemmAlignment;
  int align_bias = kGemmAlignment;
  // Leading dimension of the epilogue's argument [m, n], of dtype `out`.
  std::int64_t ld_pre = 0;
  int align_pre = kGemmAlignment;

  bool operator==(const GemmShape&) const = default;
};

// tf32: f32 GEMMs use TF32.
GemmShape shape_of(const Gemm& op, bool tf32);

// Throws Error(unsupported) for what cuBLASLt is not asked for: f64, a bias or an epilogue on an
// f32 D of bf16 factors or in a batch, rows of an epilogue's argument where it does not take them.
// Error(internal) for what does not fit together, such as overlapping matrices of D.
void check(const GemmShape& shape);

// Returns "m4096 n12288 k4096 nt bf16>bf16 bias a256": sizes, transposed (t) or not (n) A and B,
// dtypes, then what is not usual: tf32, acc, bias, gelu or dgelu, leading dimensions of rows with
// gaps (lda5000), the batch with its strides (batch32 sa512 sb0 sd64). The last word is the
// alignment of all pointers, or of A, B, D (bias, pre) if they differ (a256,16,256). Equal texts
// mean equal shapes.
std::string to_text(const GemmShape& shape);

struct GemmShapeHash {
  std::size_t operator()(const GemmShape& shape) const;
};

// One of the matrices as it is stored, row-major.
struct GemmMatrix {
  DType dtype = DType::f32;
  std::int64_t rows = 0, cols = 0, ld = 0;
  std::int64_t stride = 0;  // elements between matrices of a batch
  int alignment = kGemmAlignment;
};
GemmMatrix matrix_a(const GemmShape& shape);
GemmMatrix matrix_b(const GemmShape& shape);
GemmMatrix matrix_d(const GemmShape& shape);
GemmMatrix matrix_pre(const GemmShape& shape);  // with an epilogue

// Returns the bytes from the batch's first element to the end of its last.
std::int64_t bytes_of(const GemmMatrix& matrix, std::int64_t batch);

}  // namespace tessera::trainer::cuda
