// SPDX-License-Identifier: Apache-2.0
// GEMMs in cuBLASLt's terms: pure, needs no GPU.
//
// cuBLASLt's matrices are column-major. A row-major matrix is its own transpose read by columns,
// and D^T = op(B)^T op(A)^T, so nothing is moved: cuBLASLt's first factor is our B, its second is
// our A, its result is D^T [n, m], and a bias along its rows is a bias along our columns. An
// epilogue's auxiliary matrix is pre^T [n, m], with our rows as its columns too.
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

// Describes a GEMM after checking its shape. Algorithms may use workspace_bytes, and the reductions
// of gemm_reductions. Until set_bias and set_pre, a bias and an epilogue's argument are
// placeholders with the right alignment.
GemmDescriptors describe(const CublasLt& lt, const GemmShape& shape, std::int64_t workspace_bytes);

// Sets the bias of the next launch.
void set_bias(const CublasLt& lt, const GemmDescriptors& descriptors, const void* bias);
void set_pre(const CublasLt& lt, const GemmDescriptors& descriptors, void* pre);

// Returns which split-k reductions are allowed, as bits of cublasLtReductionScheme_t (no split-k is
// always allowed): only a separate step over parts kept in f32. The in-place scheme rounds each
// part to D's dtype, where we promise one rounding, and its documentation promises no order of the
// parts.
std::uint32_t gemm_reductions(const GemmShape& shape);

// Throws unless success: unsupported, oom or failed, as "gemm SHAPE: WHAT: its status".
void require(const CublasLt& lt, cublasStatus_t status, const GemmShape& shape,
             std::string_view what);

}  // namespace tessera::trainer::cuda
