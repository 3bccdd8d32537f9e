// SPDX-License-Identifier: Apache-2.0
// The choice of kernels, and the scratch that each operation needs.
#include "trainer/device/cpu/operations.h"

namespace tessera::trainer::cpu {
namespace {

struct WorkspaceOf {
  int threads;
  std::int64_t operator()(const Gemm& op) const { return gemm_workspace_bytes(op); }
  std::int64_t operator()(const Rope& op) const { return rope_workspace_bytes(op, threads); }
  std::int64_t operator()(const AttentionForward& op) const {
    return attention_workspace_bytes(op, threads);
  }
  std::int64_t operator()(const AttentionBackward& op) const {
    return attention_workspace_bytes(op, threads);
  }
  template <class T>
  std::int64_t operator()(const T&) const {
    return 0;
  }
};

}  // namespace

std::int64_t workspace_bytes(const Op& op, int threads) {
  return std::visit(WorkspaceOf{threads}, op);
}

std::span<const Kernels* const> supported_kernels() {
  static const Kernels* const tables[] = {&avx512::kernels(), &avx2::kernels(),
                                          &x86_64_v2::kernels()};
  const std::span<const Kernels* const> all(tables);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return all;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return all.subspan(1);
  return all.subspan(2);
}

}  // namespace tessera::trainer::cpu
