// The CUDA libraries beside the run time, opened when a GPU is used: the trainer links to none of
// them, so that one file starts on every machine, and says what is missing where a GPU is asked
// for.
//
// Each is looked for, in this order, in the folders of TESSERA_CUDA_LIBRARIES (parted by colons),
// where the loader looks, in the toolkit that the trainer was built with, in /usr/local/cuda, and
// in the packages nvidia/*/lib of an active Python environment (VIRTUAL_ENV, CONDA_PREFIX). What is
// opened stays open until the program ends. A cuDNN that is too old for attention, or for another
// CUDA, is passed over (cudnn_library.h).
#pragma once

#include <cublasLt.h>

#include <filesystem>
#include <string>

#if TESSERA_HAS_CUDNN
#include <cudnn.h>
#endif

namespace tessera::trainer::cuda {

// Functions by their own names, of the header's types.
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
  std::filesystem::path path;  // as the loader has it
  std::string version;         // "13.1.0", as the library says
  TESSERA_CUBLASLT_FUNCTIONS(TESSERA_DECLARE)
};

// Error(unsupported) naming the library, where it was looked for and what was found instead.
// Thread-safe.
const CublasLt& cublas_lt();

#if TESSERA_HAS_CUDNN
struct Cudnn {
  std::filesystem::path path;
  std::string version;  // "9.19.0"
  TESSERA_CUDNN_FUNCTIONS(TESSERA_DECLARE)
};

// The same; also opens what it needs: cuBLASLt, its own parts, and the run-time compiler (libnvrtc)
// that it compiles its kernels with.
const Cudnn& cudnn();
#endif

#undef TESSERA_DECLARE

// The first library of that name that can be opened where the others are looked for, or null.
void* try_open_library(const std::string& name);

}  // namespace tessera::trainer::cuda
