// SPDX-License-Identifier: Apache-2.0
// The vector kernels of the CPU device, as a table chosen once at run time for the machine's ISA.
//
// kernel/kernels.cpp is compiled once for each ISA, with other -m flags. So this header, which it
// includes, holds plain types only: an inline function here would be compiled several times and the
// linker might keep the one that an older CPU cannot run.
//
// A kernel works on contiguous elements of one thread. Storage types are float, double and Bf16;
// each is computed in Compute<S>. No kernel reads or writes outside of its n elements, and its bits
// depend on its input and the ISA only, not on addresses.
#pragma once

#include <cstdint>

namespace tessera::trainer::cpu {

struct Bf16 {
  std::uint16_t bits;
};

template <class S>
struct ComputeType {
  using Type = S;
};
template <>
struct ComputeType<Bf16> {
  using Type = float;
};
template <class S>
using Compute = typename ComputeType<S>::Type;

enum class Act : std::uint8_t { gelu_erf, gelu_tanh, swiglu };

// One row of a norm between a residual stream and parameters stored as R and branches stored as S.
// R is S or Compute<S>. Rounded once each: sum = x + add, y. The statistics see the rounded sum.
template <class R, class S>
struct NormRow {
  const R* x;
  const S* add;  // null: sum is not written
  R* sum;
  S* y;
  const R* gain;
  const R* bias;     // may be null
  Compute<S>* mean;  // null: RMSNorm
  Compute<S>* rstd;
  std::int64_t n;
  Compute<S> eps;
};

// The gradient of one row. dsum is rounded once; dgain and dbias are accumulated, unrounded.
template <class R, class S>
struct NormBackwardRow {
  const S* dy;
  const R* dsum_in;  // may be null, may be dsum
  const R* sum;
  const R* gain;
  R* dsum;
  const Compute<S>* mean;  // null: RMSNorm
  const Compute<S>* rstd;
  Compute<S>* dgain;
  Compute<S>* dbias;  // may be null
  std::int64_t n;
};

struct AdamWRange {
  const float* grad;
  float* master;
  float* m;
  float* v;
  std::int64_t n;
  float clip, beta1, beta2, eps, bias1, bias2, lr, weight_decay;
};

template <class S>
struct StorageKernels {
  using C = Compute<S>;
  // dst = src; exact.
  void (*load)(const S* src, C* dst, std::int64_t n);
  // dst = round(src (+ bias) (+ dst)), one rounding. bias may be null.
  void (*store)(const C* src, const S* bias, S* dst, std::int64_t n, bool accumulate);
  // dst += src, in C.
  void (*add_to)(const S* src, C* dst, std::int64_t n);
  // y = round(a + b).
  void (*add)(const S* a, const S* b, S* y, std::int64_t n);
  // Squares and sum in double.
  double (*sum_of_squares)(const S* x, std::int64_t n);
  // Sum of a * b.
  C (*dot)(const S* a, const S* b, std::int64_t n);

  // y = round(f(x)); swiglu: y = round(silu(x) * up). y may be x.
  void (*act_forward)(Act act, const S* x, const S* up, S* y, std::int64_t n);
  // dx = round(f'(x) dy), and dup = round(silu(x) dy) for swiglu. dx may be dy or x, dup may be up.
  void (*act_backward)(Act act, const S* x, const S* up, const S* dy, S* dx, S* dup,
                       std::int64_t n);

  void (*norm_forward)(const NormRow<S, S>& row);
  void (*norm_backward)(const NormBackwardRow<S, S>& row);
  // The same for a residual stream and parameters in C.
  void (*norm_forward_wide)(const NormRow<C, S>& row);
  void (*norm_backward_wide)(const NormBackwardRow<C, S>& row);

  // Returns the loss of a row of logits, which become round((softmax - one-hot) * factor); columns
  // from vocab to cols become 0.
  C (*cross_entropy)(S* logits, std::int64_t vocab, std::int64_t cols, std::int64_t target,
                     C factor);

  // dst[c * ld_dst + r] = src[r * ld + c] for r < rows, 0 for rows <= r < ld_dst.
  void (*pack_transposed)(const S* src, std::int64_t ld, std::int64_t rows, std::int64_t cols,
                          C* dst, std::int64_t ld_dst);

  // param = round(master) if not null. Null for double.
  void (*adamw)(const AdamWRange& range, S* param);
};

// Queries and keys of an attention tile, and the multiple that its parts are padded to.
inline constexpr std::int64_t kTile = 64;
inline constexpr std::int64_t kStrip = 16;

template <class C>
struct ComputeKernels {
  // c[m, n] (+)= a b, where a[i, l] is a[i * a_row + l * a_col]. n is a multiple of kStrip.
  void (*gemm)(std::int64_t m, std::int64_t n, std::int64_t k, const C* a, std::int64_t a_row,
               std::int64_t a_col, const C* b, std::int64_t ldb, C* c, std::int64_t ldc,
               bool accumulate);
  // One step of the online softmax of kTile queries. scores [keys, kTile] become exp(scale * score
  // - maximum). `maximum` and `sum` [kTile] are updated; `rescale` [kTile] is the factor for
  // earlier sums and outputs. A score of -infinity is masked.
  void (*softmax_step)(C* scores, std::int64_t keys, C scale, C* maximum, C* sum, C* rescale);
  // scores [keys, kTile] become p = exp(scale * score - lse), dp becomes scale * p * (dp -
  // row_sum).
  void (*softmax_backward)(C* scores, C* dp, std::int64_t keys, C scale, const C* lse,
                           const C* row_sum);
  // x *= factor.
  void (*multiply)(C* x, C factor, std::int64_t n);

  // The functions inside the activations and the softmax, for their tests.
  void (*exp)(const C* x, C* y, std::int64_t n);
  void (*normal_cdf)(const C* x, C* y, std::int64_t n);  // (1 + erf(x / sqrt 2)) / 2
  void (*sigmoid)(const C* x, C* y, std::int64_t n);     // (1 + tanh(x / 2)) / 2
};

struct Kernels {
  const char* isa;
  StorageKernels<float> f32;
  StorageKernels<Bf16> bf16;
  StorageKernels<double> f64;
  ComputeKernels<float> compute32;
  ComputeKernels<double> compute64;
};

namespace x86_64_v2 {
const Kernels& kernels();
}
namespace avx2 {
const Kernels& kernels();
}
namespace avx512 {
const Kernels& kernels();
}

}  // namespace tessera::trainer::cpu
