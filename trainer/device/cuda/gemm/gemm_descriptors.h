// A matrix product in cuBLASLt's words: pure, needs no GPU.
//
// cuBLASLt's matrices are column-major. A row-major matrix is its own transpose read by columns,
// and D^T = op(B)^T op(A)^T, so nothing is moved: cuBLASLt's first factor is our B, its second our
// A, its result D^T [n, m], and a bias along its rows is one along our columns. What an epilogue
// writes or reads besides is pre^T [n, m], with our rows for its columns too.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "trainer/device/cuda/gemm/gemm_shape.h"
#include "trainer/device/cuda/libraries/libraries.h"

namespace tessera::trainer::cuda {

template <class Opaque>
using LtOwned = std::unique_ptr<Opaque, cublasStatus_t (*)(Opaque*)>;
using LtLayout = LtOwned<cublasLtMatrixLayoutOpaque_t>;

struct GemmDescriptors {
  LtOwned<cublasLtMatmulDescOpaque_t> operation;
  LtLayout b;  // cuBLASLt's A
  LtLayout a;  // cuBLASLt's B
  LtLayout d;  // its C and D
  LtOwned<cublasLtMatmulPreferenceOpaque_t> preference;
};

// Checks the shape. Algorithms may use that much workspace, and reductions as gemm_reductions says.
// A bias stands for one at an address of its alignment until set_bias, an epilogue's argument until
// set_pre.
GemmDescriptors describe(const CublasLt& lt, const GemmShape& shape, std::int64_t workspace_bytes);

// For the next launch.
void set_bias(const CublasLt& lt, const GemmDescriptors& descriptors, const void* bias);
void set_pre(const CublasLt& lt, const GemmDescriptors& descriptors, void* pre);

// How an algorithm that sums parts of k apart may add them up, as bits of
// cublasLtReductionScheme_t (not to part k is always allowed): only by a separate step over parts
// kept in f32. The scheme that adds in place rounds each part to D's dtype, where one rounding is
// promised, and its documentation promises no order of the parts.
std::uint32_t gemm_reductions(const GemmShape& shape);

// Error unless success: unsupported, oom or failed, "gemm SHAPE: WHAT: its status".
void require(const CublasLt& lt, cublasStatus_t status, const GemmShape& shape,
             std::string_view what);

}  // namespace tessera::trainer::cuda
