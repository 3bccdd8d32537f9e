// The choice of kernels, and what each operation needs of scratch.
#include "trainer/device/cpu/operations.h"

namespace tessera::trainer::cpu {
namespace {

struct WorkspaceOf {
  int threads;
  std::int64_t operator()(const Gemm& op) const { return gemm_workspace_bytes(op); }
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

const Kernels& best_kernels() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return avx512::kernels();
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2::kernels();
  return x86_64_v2::kernels();
}

}  // namespace tessera::trainer::cpu
