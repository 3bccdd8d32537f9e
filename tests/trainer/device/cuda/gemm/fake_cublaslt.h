// SPDX-License-Identifier: Apache-2.0
// A fake cuBLASLt that needs no GPU: the real library's descriptors, made-up heuristics and GEMMs.
// A GEMM does what the documentation says of its descriptors, by loops over host memory:
// column-major D = alpha op(A) op(B) + beta C (+ bias along D's rows), with a batch and with two
// epilogues, tanh GELU with its argument as an auxiliary matrix, and GELU's gradient. So a caller
// that passes correct descriptors and pointers gets the result that a GPU would give.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/device/cuda/libraries/libraries.h"

namespace tessera::trainer::test {

// An algorithm that the heuristics know, in their order.
struct FakeAlgorithm {
  int id = 0;
  double seconds = 1e-3;  // of a launch
  std::uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
  std::int32_t split_k = 1;
  std::size_t workspace_bytes = 0;
  cublasStatus_t state = CUBLAS_STATUS_SUCCESS;   // in the heuristics' result
  cublasStatus_t launch = CUBLAS_STATUS_SUCCESS;  // of cublasLtMatmul
  cublasStatus_t check = CUBLAS_STATUS_SUCCESS;   // of cublasLtMatmulAlgoCheck
};

struct FakeLaunch {
  int algorithm = 0;
  const void* a = nullptr;  // cuBLASLt's A
  const void* b = nullptr;
  void* d = nullptr;
  void* aux = nullptr;  // of the epilogue
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  void* stream = nullptr;
};

struct FakeGpu {
  std::vector<FakeAlgorithm> algorithms{{.id = 66}};
  cublasStatus_t create = CUBLAS_STATUS_SUCCESS;
  cublasStatus_t heuristic = CUBLAS_STATUS_SUCCESS;
  bool computes = true;  // false: launches take time and write nothing

  int handles = 0;   // created and not destroyed
  int searches = 0;  // of heuristics
  double clock = 0;  // seconds of all launches
  std::vector<FakeLaunch> launches;
};

// Resets and returns the one GPU that the functions work on.
FakeGpu& new_fake_gpu();
cuda::CublasLt fake_cublas_lt();

// Returns the algorithm as the heuristics give it.
cublasLtMatmulAlgo_t fake_algorithm(int id);

}  // namespace tessera::trainer::test
