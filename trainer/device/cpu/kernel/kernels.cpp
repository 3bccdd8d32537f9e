// SPDX-License-Identifier: Apache-2.0
// The kernel table of one ISA. This file is compiled once for each ISA; TESSERA_ISA names its
// namespace.
#include "trainer/device/cpu/kernels.h"

#include "trainer/device/cpu/kernel/attention.h"
#include "trainer/device/cpu/kernel/elementwise.h"
#include "trainer/device/cpu/kernel/rows.h"

namespace tessera::trainer::cpu {
namespace {

template <class S>
constexpr StorageKernels<S> storage_kernels() {
  StorageKernels<S> k{};
  k.load = load_all<S>;
  k.store = store_all<S>;
  k.add_to = add_to<S>;
  k.add = add<S>;
  k.sum_of_squares = sum_of_squares<S>;
  k.dot = dot<S>;
  k.act_forward = act_forward<S>;
  k.act_backward = act_backward<S>;
  k.norm_forward = norm_forward<S, S>;
  k.norm_backward = norm_backward<S, S>;
  k.norm_forward_wide = norm_forward<Compute<S>, S>;
  k.norm_backward_wide = norm_backward<Compute<S>, S>;
  k.cross_entropy = cross_entropy<S>;
  k.pack_transposed = pack_transposed<S>;
  if constexpr (sizeof(S) < sizeof(double)) k.adamw = adamw<S>;
  return k;
}

template <class C>
void exp_all(const C* x, C* y, std::int64_t n) {
  map(x, y, n, [](Vector<C> v) __attribute__((always_inline)) { return exp(v); });
}

template <class C>
void normal_cdf_all(const C* x, C* y, std::int64_t n) {
  map(x, y, n, [](Vector<C> v) __attribute__((always_inline)) { return normal_cdf(v).cdf; });
}

template <class C>
void sigmoid_all(const C* x, C* y, std::int64_t n) {
  map(x, y, n, [](Vector<C> v) __attribute__((always_inline)) { return sigmoid(v); });
}

template <class C>
constexpr ComputeKernels<C> compute_kernels() {
  ComputeKernels<C> k{};
  k.gemm = gemm<C>;
  k.softmax_step = softmax_step<C>;
  k.softmax_backward = softmax_backward<C>;
  k.multiply = multiply<C>;
  k.exp = exp_all<C>;
  k.normal_cdf = normal_cdf_all<C>;
  k.sigmoid = sigmoid_all<C>;
  return k;
}

constexpr Kernels kTable = {TESSERA_ISA_NAME,         storage_kernels<float>(),
                            storage_kernels<Bf16>(),  storage_kernels<double>(),
                            compute_kernels<float>(), compute_kernels<double>()};

}  // namespace

namespace TESSERA_ISA {
const Kernels& kernels() {
  return kTable;
}
}  // namespace TESSERA_ISA

}  // namespace tessera::trainer::cpu
