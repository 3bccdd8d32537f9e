// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/gemm/gemm_descriptors.h"

#include <fmt/format.h>

#include "lib/base/error.h"

namespace tessera::trainer::cuda {

namespace {

cudaDataType_t data_type(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

cublasOperation_t transposition(bool transpose) {
  return transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
}

cublasLtEpilogue_t epilogue(const GemmShape& shape) {
  switch (shape.epilogue) {
    case GemmEpilogue::gelu:
      return shape.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case GemmEpilogue::dgelu:
      return CUBLASLT_EPILOGUE_DGELU;
    case GemmEpilogue::none:
      break;
  }
  return shape.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

// A made-up address with exactly this alignment.
const void* address(int alignment) {
  return reinterpret_cast<const void*>(static_cast<std::uintptr_t>(alignment));
}

void set_address(const CublasLt& lt, const GemmDescriptors& descriptors,
                 cublasLtMatmulDescAttributes_t attribute, const void* data) {
  const cublasStatus_t status = lt.cublasLtMatmulDescSetAttribute(
      descriptors.operation.get(), attribute, static_cast<const void*>(&data), sizeof(data));
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw Error(ExitCode::internal, "cublasLtMatmulDescSetAttribute",
                lt.cublasLtGetStatusString(status));
  }
}

class DescriptorBuilder {
 public:
  DescriptorBuilder(const CublasLt& lt, const GemmShape& shape) : lt_(lt), shape_(shape) {}

  LtOwned<cublasLtMatmulDescOpaque_t> operation() const {
    cublasLtMatmulDesc_t made = nullptr;
    const cublasComputeType_t compute =
        shape_.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    require(lt_.cublasLtMatmulDescCreate(&made, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
    LtOwned<cublasLtMatmulDescOpaque_t> owned(made, lt_.cublasLtMatmulDescDestroy);
    // cuBLASLt's A is our B, hence the exchange here and in the alignments below.
    set(owned, CUBLASLT_MATMUL_DESC_TRANSA, transposition(shape_.transpose_b));
    set(owned, CUBLASLT_MATMUL_DESC_TRANSB, transposition(shape_.transpose_a));
    set(owned, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(shape_));
    // The addresses are never read: heuristics look at their alignment.
    if (shape_.bias) {
      set(owned, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(shape_.out));
      set(owned, CUBLASLT_MATMUL_DESC_BIAS_POINTER, address(shape_.align_bias));
    }
    if (shape_.epilogue != GemmEpilogue::none) {
      set(owned, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, data_type(shape_.out));
      set(owned, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, shape_.ld_pre);
      set(owned, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, address(shape_.align_pre));
    }
    return owned;
  }

  // Our rows are cuBLASLt's columns.
  LtLayout layout(const GemmMatrix& matrix) const {
    cublasLtMatrixLayout_t made = nullptr;
    require(lt_.cublasLtMatrixLayoutCreate(&made, data_type(matrix.dtype),
                                           static_cast<std::uint64_t>(matrix.cols),
                                           static_cast<std::uint64_t>(matrix.rows), matrix.ld),
            "cublasLtMatrixLayoutCreate");
    LtLayout owned(made, lt_.cublasLtMatrixLayoutDestroy);
    if (shape_.batch > 1) {
      set(owned, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(shape_.batch));
      set(owned, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.stride);
    }
    return owned;
  }

  LtOwned<cublasLtMatmulPreferenceOpaque_t> preference(std::int64_t workspace_bytes) const {
    cublasLtMatmulPreference_t made = nullptr;
    require(lt_.cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
    LtOwned<cublasLtMatmulPreferenceOpaque_t> owned(made, lt_.cublasLtMatmulPreferenceDestroy);
    set(owned, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
        static_cast<std::uint64_t>(workspace_bytes));
    set(owned, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, gemm_reductions(shape_));
    const auto align = [&](cublasLtMatmulPreferenceAttributes_t attribute, int bytes) {
      set(owned, attribute, static_cast<std::uint32_t>(bytes));
    };
    align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape_.align_b);
    align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape_.align_a);
    align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape_.align_d);
    align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape_.align_d);
    return owned;
  }

 private:
  void require(cublasStatus_t status, std::string_view what) const {
    cuda::require(lt_, status, shape_, what);
  }

  template <class Value>
  void set(const LtOwned<cublasLtMatmulDescOpaque_t>& to, cublasLtMatmulDescAttributes_t attribute,
           const Value& value) const {
    require(lt_.cublasLtMatmulDescSetAttribute(to.get(), attribute,
                                               static_cast<const void*>(&value), sizeof(Value)),
            "cublasLtMatmulDescSetAttribute");
  }
  template <class Value>
  void set(const LtLayout& to, cublasLtMatrixLayoutAttribute_t attribute,
           const Value& value) const {
    require(lt_.cublasLtMatrixLayoutSetAttribute(to.get(), attribute, &value, sizeof(Value)),
            "cublasLtMatrixLayoutSetAttribute");
  }
  template <class Value>
  void set(const LtOwned<cublasLtMatmulPreferenceOpaque_t>& to,
           cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) const {
    require(lt_.cublasLtMatmulPreferenceSetAttribute(to.get(), attribute, &value, sizeof(Value)),
            "cublasLtMatmulPreferenceSetAttribute");
  }

  const CublasLt& lt_;
  const GemmShape& shape_;
};

// Faults of the library, by what a caller can do about them.
ExitCode exit_code(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_NOT_SUPPORTED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return ExitCode::unsupported;
    case CUBLAS_STATUS_ALLOC_FAILED:
      return ExitCode::oom;
    default:
      return ExitCode::failed;
  }
}

}  // namespace

GemmDescriptors describe(const CublasLt& lt, const GemmShape& shape, std::int64_t workspace_bytes) {
  check(shape);
  const DescriptorBuilder builder(lt, shape);
  return {.operation = builder.operation(),
          .b = builder.layout(matrix_b(shape)),
          .a = builder.layout(matrix_a(shape)),
          .d = builder.layout(matrix_d(shape)),
          .preference = builder.preference(workspace_bytes)};
}

void set_bias(const CublasLt& lt, const GemmDescriptors& descriptors, const void* bias) {
  set_address(lt, descriptors, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
}

void set_pre(const CublasLt& lt, const GemmDescriptors& descriptors, void* pre) {
  set_address(lt, descriptors, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, pre);
}

std::uint32_t gemm_reductions(const GemmShape& shape) {
  // If D is f32, parts in D's dtype are f32 parts.
  const std::uint32_t out = shape.out == DType::f32 ? CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE : 0;
  return CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | out;
}

void require(const CublasLt& lt, cublasStatus_t status, const GemmShape& shape,
             std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(exit_code(status), "gemm " + to_text(shape),
              fmt::format("{}: {}", what, lt.cublasLtGetStatusString(status)));
}

}  // namespace tessera::trainer::cuda
