// SPDX-License-Identifier: Apache-2.0
// The CUDA libraries beside the run time, opened when a GPU is used. The trainer links to none of
// them, so that one file starts on every machine and says what is missing when a GPU is asked for.
//
// Each library is looked for in this order: in the folders of TESSERA_CUDA_LIBRARIES (separated by
// colons), where the loader looks, in the toolkit that the trainer was built with, in
// /usr/local/cuda, and in the packages nvidia/*/lib of an active Python environment (VIRTUAL_ENV,
// CONDA_PREFIX). What is opened stays open until the program ends. A cuDNN that is too old for
// attention, or for another CUDA, is skipped (cudnn_library.h).
#pragma once

#include <cublasLt.h>

#include <filesystem>
#include <string>

#if TESSERA_HAS_CUDNN
#include <cudnn.h>
#endif

namespace tessera::trainer::cuda {

// Function pointers under the library's own names, with the header's types.
#define TESSERA_CUBLASLT_FUNCTIONS(each)                                                           \
  each(cublasLtCreate) each(cublasLtDestroy) each(cublasLtGetVersion)                              \
      each(cublasLtGetStatusString) each(cublasLtMatmul) each(cublasLtMatmulAlgoGetHeuristic)      \
          each(cublasLtMatmulAlgoCheck) each(cublasLtMatmulAlgoConfigGetAttribute)                 \
              each(cublasLtMatmulDescInit_internal) each(cublasLtMatmulDescCreate)                 \
                  each(cublasLtMatmulDescDestroy) each(cublasLtMatmulDescSetAttribute)             \
                      each(cublasLtMatmulDescGetAttribute) each(cublasLtMatrixLayoutCreate)        \
                          each(cublasLtMatrixLayoutDestroy) each(cublasLtMatrixLayoutSetAttribute) \
                              each(cublasLtMatrixLayoutGetAttribute)                               \
                                  each(cublasLtMatmulPreferenceCreate)                             \
                                      each(cublasLtMatmulPreferenceDestroy)                        \
                                          each(cublasLtMatmulPreferenceSetAttribute)               \
                                              each(cublasLtMatmulPreferenceGetAttribute)

#define TESSERA_CUDNN_FUNCTIONS(each)                                                            \
  each(cudnnCreate) each(cudnnDestroy) each(cudnnSetStream) each(cudnnGetVersion)                \
      each(cudnnGetErrorString) each(cudnnGetLastErrorString) each(cudnnBackendCreateDescriptor) \
          each(cudnnBackendDestroyDescriptor) each(cudnnBackendSetAttribute)                     \
              each(cudnnBackendGetAttribute) each(cudnnBackendFinalize) each(cudnnBackendExecute)

#define TESSERA_DECLARE(function) \
  decltype(&::function) function = nullptr;  // NOLINT(bugprone-macro-parentheses)

struct CublasLt {
  std::filesystem::path path;  // where the loader opened it
  std::string version;         // "13.1.0", from the library
  TESSERA_CUBLASLT_FUNCTIONS(TESSERA_DECLARE)
};

// Returns cuBLASLt. Error(unsupported) names the library, where it was looked for and what was
// found instead. Thread-safe.
const CublasLt& cublas_lt();

#if TESSERA_HAS_CUDNN
struct Cudnn {
  std::filesystem::path path;
  std::string version;  // "9.19.0"
  TESSERA_CUDNN_FUNCTIONS(TESSERA_DECLARE)
};

// Returns cuDNN, with the same errors. It also opens what cuDNN needs: cuBLASLt, its own parts, and
// libnvrtc, which compiles its kernels.
const Cudnn& cudnn();
#endif

#undef TESSERA_DECLARE

// Opens the first library of that name in the same folders, or returns null.
void* try_open_library(const std::string& name);

}  // namespace tessera::trainer::cuda
