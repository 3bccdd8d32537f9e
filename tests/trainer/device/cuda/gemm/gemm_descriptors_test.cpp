// SPDX-License-Identifier: Apache-2.0
// Descriptors of GEMMs, read back from cuBLASLt. Expected values are worked out by hand from its
// documentation: column-major, D [rows, cols] = op(A) op(B), a bias along D's rows.
#include "trainer/device/cuda/gemm/gemm_descriptors.h"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "lib/base/error.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::cuda;

namespace {

template <class Number>
Number get(const LtOwned<cublasLtMatmulDescOpaque_t>& from, cublasLtMatmulDescAttributes_t what) {
  Number number{};
  std::size_t written = 0;
  REQUIRE(cublas_lt().cublasLtMatmulDescGetAttribute(from.get(), what, static_cast<void*>(&number),
                                                     sizeof(number),
                                                     &written) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(written == sizeof(number));
  return number;
}

template <class Number>
Number get(const LtLayout& from, cublasLtMatrixLayoutAttribute_t what) {
  Number number{};
  std::size_t written = 0;
  REQUIRE(cublas_lt().cublasLtMatrixLayoutGetAttribute(from.get(), what, &number, sizeof(number),
                                                       &written) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(written == sizeof(number));
  return number;
}

template <class Number>
Number get(const LtOwned<cublasLtMatmulPreferenceOpaque_t>& from,
           cublasLtMatmulPreferenceAttributes_t what) {
  Number number{};
  std::size_t written = 0;
  REQUIRE(cublas_lt().cublasLtMatmulPreferenceGetAttribute(
              from.get(), what, &number, sizeof(number), &written) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(written == sizeof(number));
  return number;
}

struct Layout {
  cudaDataType_t type = CUDA_R_16BF;
  std::uint64_t rows = 0, cols = 0;
  std::int64_t ld = 0;
  std::int32_t batch = 1;
  std::int64_t stride = 0;
};

// The epilogue's auxiliary matrix, column-major like D.
struct Aux {
  cudaDataType_t type = CUDA_R_16BF;
  std::int64_t ld = 0;
  std::uintptr_t address = 256;  // stands for its alignment
};

struct Expected {
  std::string name;
  GemmShape shape;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasOperation_t first = CUBLAS_OP_N, second = CUBLAS_OP_N;
  Layout first_layout, second_layout, result_layout;
  std::optional<cudaDataType_t> bias = std::nullopt;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::optional<Aux> aux = std::nullopt;
  std::uint32_t reductions = 2;  // CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
  std::uint32_t first_alignment = 256, second_alignment = 256, result_alignment = 256;
};

std::vector<Expected> table() {
  return {
      // y [300, 96] = x [300, 64] w [96, 64]^T: y^T = (w^T)^T x^T.
      {.name = "linear layer",
       .shape = {.m = 300, .n = 96, .k = 64, .lda = 64, .ldb = 64, .ldd = 96},
       .first = CUBLAS_OP_T,
       .first_layout = {.rows = 64, .cols = 96, .ld = 64},
       .second_layout = {.rows = 64, .cols = 300, .ld = 64},
       .result_layout = {.rows = 96, .cols = 300, .ld = 96}},
      {.name = "linear layer with bias, rows with gaps, other alignments",
       .shape = {.m = 300,
                 .n = 96,
                 .k = 64,
                 .lda = 80,
                 .ldb = 66,
                 .ldd = 104,
                 .bias = true,
                 .align_a = 128,
                 .align_b = 64,
                 .align_d = 32,
                 .align_bias = 16},
       .first = CUBLAS_OP_T,
       .first_layout = {.rows = 64, .cols = 96, .ld = 66},
       .second_layout = {.rows = 64, .cols = 300, .ld = 80},
       .result_layout = {.rows = 96, .cols = 300, .ld = 104},
       .bias = CUDA_R_16BF,
       .epilogue = CUBLASLT_EPILOGUE_BIAS,
       .first_alignment = 64,
       .second_alignment = 128,
       .result_alignment = 32},
      // y [300, 96] = gelu(x [300, 64] w [96, 64]^T + b), beside its argument in rows of 104.
      {.name = "linear layer with bias and GELU",
       .shape = {.m = 300,
                 .n = 96,
                 .k = 64,
                 .lda = 64,
                 .ldb = 64,
                 .ldd = 96,
                 .bias = true,
                 .epilogue = GemmEpilogue::gelu,
                 .ld_pre = 104,
                 .align_pre = 16},
       .first = CUBLAS_OP_T,
       .first_layout = {.rows = 64, .cols = 96, .ld = 64},
       .second_layout = {.rows = 64, .cols = 300, .ld = 64},
       .result_layout = {.rows = 96, .cols = 300, .ld = 96},
       .bias = CUDA_R_16BF,
       .epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
       .aux = Aux{.ld = 104, .address = 16}},
      {.name = "linear layer with GELU, f32",
       .shape = {.m = 8,
                 .n = 16,
                 .k = 4,
                 .lda = 4,
                 .ldb = 4,
                 .ldd = 16,
                 .in = DType::f32,
                 .out = DType::f32,
                 .epilogue = GemmEpilogue::gelu,
                 .ld_pre = 16},
       .first = CUBLAS_OP_T,
       .first_layout = {.type = CUDA_R_32F, .rows = 4, .cols = 16, .ld = 4},
       .second_layout = {.type = CUDA_R_32F, .rows = 4, .cols = 8, .ld = 4},
       .result_layout = {.type = CUDA_R_32F, .rows = 16, .cols = 8, .ld = 16},
       .epilogue = CUBLASLT_EPILOGUE_GELU_AUX,
       .aux = Aux{.type = CUDA_R_32F, .ld = 16},
       .reductions = 6},
      // dpre [300, 96] = gelu'(pre) (dy [300, 64] w [64, 96]).
      {.name = "gradient through a GELU",
       .shape = {.m = 300,
                 .n = 96,
                 .k = 64,
                 .lda = 64,
                 .ldb = 96,
                 .ldd = 96,
                 .transpose_b = false,
                 .epilogue = GemmEpilogue::dgelu,
                 .ld_pre = 96,
                 .align_pre = 128},
       .first_layout = {.rows = 96, .cols = 64, .ld = 96},
       .second_layout = {.rows = 64, .cols = 300, .ld = 64},
       .result_layout = {.rows = 96, .cols = 300, .ld = 96},
       .epilogue = CUBLASLT_EPILOGUE_DGELU,
       .aux = Aux{.ld = 96, .address = 128}},
      // dx [300, 64] = dy [300, 96] w [96, 64].
      {.name = "input gradient",
       .shape = {.m = 300, .n = 64, .k = 96, .lda = 96, .ldb = 64, .ldd = 64, .transpose_b = false},
       .first_layout = {.rows = 64, .cols = 96, .ld = 64},
       .second_layout = {.rows = 96, .cols = 300, .ld = 96},
       .result_layout = {.rows = 64, .cols = 300, .ld = 64}},
      // dw [96, 64] += dy [300, 96]^T x [300, 64], f32.
      {.name = "weight gradient",
       .shape = {.m = 96,
                 .n = 64,
                 .k = 300,
                 .lda = 96,
                 .ldb = 64,
                 .ldd = 64,
                 .transpose_a = true,
                 .transpose_b = false,
                 .out = DType::f32,
                 .accumulate = true},
       .second = CUBLAS_OP_T,
       .first_layout = {.rows = 64, .cols = 300, .ld = 64},
       .second_layout = {.rows = 96, .cols = 300, .ld = 96},
       .result_layout = {.type = CUDA_R_32F, .rows = 64, .cols = 96, .ld = 64},
       .reductions = 6},
      // d [19, 23] = x [37, 19]^T w [23, 37]^T.
      {.name = "both transposed, f32 with bias",
       .shape = {.m = 19,
                 .n = 23,
                 .k = 37,
                 .lda = 19,
                 .ldb = 37,
                 .ldd = 23,
                 .transpose_a = true,
                 .in = DType::f32,
                 .out = DType::f32,
                 .bias = true,
                 .align_bias = 4},
       .first = CUBLAS_OP_T,
       .second = CUBLAS_OP_T,
       .first_layout = {.type = CUDA_R_32F, .rows = 37, .cols = 23, .ld = 37},
       .second_layout = {.type = CUDA_R_32F, .rows = 19, .cols = 37, .ld = 19},
       .result_layout = {.type = CUDA_R_32F, .rows = 23, .cols = 19, .ld = 23},
       .bias = CUDA_R_32F,
       .epilogue = CUBLASLT_EPILOGUE_BIAS,
       .reductions = 6},
      {.name = "f32 by TF32",
       .shape = {.m = 8,
                 .n = 16,
                 .k = 4,
                 .lda = 4,
                 .ldb = 4,
                 .ldd = 16,
                 .in = DType::f32,
                 .out = DType::f32,
                 .tf32 = true},
       .compute = CUBLAS_COMPUTE_32F_FAST_TF32,
       .first = CUBLAS_OP_T,
       .first_layout = {.type = CUDA_R_32F, .rows = 4, .cols = 16, .ld = 4},
       .second_layout = {.type = CUDA_R_32F, .rows = 4, .cols = 8, .ld = 4},
       .result_layout = {.type = CUDA_R_32F, .rows = 16, .cols = 8, .ld = 16},
       .reductions = 6},
      // Scores of 6 heads of queries over one of keys: s [128, 256] f32 = q [128, 80] k [256,
      // 80]^T.
      {.name = "scores of a batch",
       .shape = {.m = 128,
                 .n = 256,
                 .k = 80,
                 .lda = 640,
                 .ldb = 640,
                 .ldd = 256,
                 .out = DType::f32,
                 .batch = 6,
                 .stride_a = 80,
                 .stride_b = 0,
                 .stride_d = 128 * 256},
       .first = CUBLAS_OP_T,
       .first_layout = {.rows = 80, .cols = 256, .ld = 640, .batch = 6},
       .second_layout = {.rows = 80, .cols = 128, .ld = 640, .batch = 6, .stride = 80},
       .result_layout =
           {.type = CUDA_R_32F, .rows = 256, .cols = 128, .ld = 256, .batch = 6, .stride = 32768},
       .reductions = 6},
  };
}

void check_layout(const LtLayout& layout, const Layout& expected) {
  CHECK(get<std::uint32_t>(layout, CUBLASLT_MATRIX_LAYOUT_TYPE) ==
        static_cast<std::uint32_t>(expected.type));
  CHECK(get<std::int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_ORDER) == CUBLASLT_ORDER_COL);
  CHECK(get<std::uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_ROWS) == expected.rows);
  CHECK(get<std::uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_COLS) == expected.cols);
  CHECK(get<std::int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_LD) == expected.ld);
  CHECK(get<std::int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) == expected.batch);
  CHECK(get<std::int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) == expected.stride);
}

}  // namespace

TEST_CASE("cuBLASLt is told the transposed product of every shape") {
  constexpr std::int64_t kWorkspace = std::int64_t{64} << 20;
  for (const Expected& e : table()) {
    CAPTURE(e.name);
    const GemmDescriptors got = describe(cublas_lt(), e.shape, kWorkspace);
    CHECK(get<std::int32_t>(got.operation, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE) == e.compute);
    CHECK(get<std::int32_t>(got.operation, CUBLASLT_MATMUL_DESC_SCALE_TYPE) == CUDA_R_32F);
    CHECK(get<std::int32_t>(got.operation, CUBLASLT_MATMUL_DESC_POINTER_MODE) ==
          CUBLASLT_POINTER_MODE_HOST);
    CHECK(get<std::int32_t>(got.operation, CUBLASLT_MATMUL_DESC_TRANSA) == e.first);
    CHECK(get<std::int32_t>(got.operation, CUBLASLT_MATMUL_DESC_TRANSB) == e.second);
    CHECK(get<std::uint32_t>(got.operation, CUBLASLT_MATMUL_DESC_EPILOGUE) ==
          static_cast<std::uint32_t>(e.epilogue));
    if (e.bias) {
      CHECK(get<std::int32_t>(got.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE) == *e.bias);
      CHECK(get<std::uintptr_t>(got.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER) ==
            static_cast<std::uintptr_t>(e.shape.align_bias));
    }
    CHECK(get<std::int32_t>(got.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE) ==
          (e.aux ? static_cast<std::int32_t>(e.aux->type) : -1));
    CHECK(get<std::int64_t>(got.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD) ==
          (e.aux ? e.aux->ld : 0));
    CHECK(get<std::uintptr_t>(got.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER) ==
          (e.aux ? e.aux->address : 0));
    {
      INFO("cuBLASLt's A");
      check_layout(got.b, e.first_layout);
    }
    {
      INFO("cuBLASLt's B");
      check_layout(got.a, e.second_layout);
    }
    {
      INFO("cuBLASLt's D");
      check_layout(got.d, e.result_layout);
    }
    const auto& preference = got.preference;
    CHECK(get<std::uint64_t>(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) == 67108864);
    CHECK(get<std::uint32_t>(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) ==
          e.reductions);
    CHECK(get<std::uint32_t>(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) ==
          e.first_alignment);
    CHECK(get<std::uint32_t>(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES) ==
          e.second_alignment);
    CHECK(get<std::uint32_t>(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES) ==
          e.result_alignment);
    CHECK(get<std::uint32_t>(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES) ==
          e.result_alignment);
    CHECK(get<std::uint32_t>(preference, CUBLASLT_MATMUL_PREF_SEARCH_MODE) ==
          CUBLASLT_SEARCH_BEST_FIT);
  }
}

TEST_CASE("the bias of a launch replaces the one that stood for its alignment") {
  const GemmDescriptors got = describe(cublas_lt(), table()[1].shape, 0);
  const float bias = 0;
  set_bias(cublas_lt(), got, &bias);
  CHECK(get<const void*>(got.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER) == &bias);
}

TEST_CASE("so does an epilogue's argument") {
  const GemmDescriptors got = describe(cublas_lt(), table()[2].shape, 0);
  float pre = 0;
  set_pre(cublas_lt(), got, &pre);
  CHECK(get<const void*>(got.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER) == &pre);
  CHECK(get<std::uintptr_t>(got.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER) == 256);
}

TEST_CASE("a shape that does not fit together is not described") {
  GemmShape shape = table()[0].shape;
  shape.ldb = 63;
  CHECK_THROWS_AS(describe(cublas_lt(), shape, 0), Error);
}

TEST_CASE("a status of cuBLASLt becomes the error that its cause asks for") {
  const GemmShape shape = table()[0].shape;
  require(cublas_lt(), CUBLAS_STATUS_SUCCESS, shape, "nothing");
  const auto code = [&](cublasStatus_t status) {
    try {
      require(cublas_lt(), status, shape, "cublasLtMatmul");
    } catch (const Error& error) {
      const std::string text = error.what();
      CHECK(text.starts_with("gemm m300 n96 k64 nt bf16>bf16 a256: cublasLtMatmul: "));
      CHECK(text.find(cublas_lt().cublasLtGetStatusString(status)) != std::string::npos);
      return error.code();
    }
    return ExitCode::ok;
  };
  CHECK(code(CUBLAS_STATUS_NOT_SUPPORTED) == ExitCode::unsupported);
  CHECK(code(CUBLAS_STATUS_ARCH_MISMATCH) == ExitCode::unsupported);
  CHECK(code(CUBLAS_STATUS_ALLOC_FAILED) == ExitCode::oom);
  CHECK(code(CUBLAS_STATUS_EXECUTION_FAILED) == ExitCode::failed);
  CHECK(code(CUBLAS_STATUS_INVALID_VALUE) == ExitCode::failed);
}
