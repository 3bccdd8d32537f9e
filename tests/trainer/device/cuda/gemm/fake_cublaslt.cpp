// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/device/cuda/gemm/fake_cublaslt.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace tessera::trainer::test {

namespace {

using cuda::cublas_lt;

FakeGpu& gpu() {
  static FakeGpu only;
  return only;
}

constexpr std::uint64_t kMark = 0xFA4E'0000'0000'0000;

const FakeAlgorithm* known(const cublasLtMatmulAlgo_t& algorithm) {
  const auto found = std::ranges::find_if(gpu().algorithms, [&](const FakeAlgorithm& each) {
    return std::memcmp(fake_algorithm(each.id).data, algorithm.data, sizeof(algorithm.data)) == 0;
  });
  return found != gpu().algorithms.end() ? &*found : nullptr;
}

// A cublasLtHandle_t is opaque: here it is the address of this variable.
int handle_target = 0;

cublasStatus_t create(cublasLtHandle_t* handle) {
  if (gpu().create != CUBLAS_STATUS_SUCCESS) return gpu().create;
  ++gpu().handles;
  *handle = reinterpret_cast<cublasLtHandle_t>(&handle_target);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t destroy(cublasLtHandle_t) {
  --gpu().handles;
  return CUBLAS_STATUS_SUCCESS;
}

bool is_ours(cublasLtHandle_t handle) {
  return handle == reinterpret_cast<cublasLtHandle_t>(&handle_target);
}

template <class Number>
Number attribute(cublasLtMatmulDesc_t from, cublasLtMatmulDescAttributes_t what) {
  Number number{};
  std::size_t written = 0;
  if (cublas_lt().cublasLtMatmulDescGetAttribute(from, what, static_cast<void*>(&number),
                                                 sizeof(number), &written) != CUBLAS_STATUS_SUCCESS)
    throw std::logic_error("no such attribute of an operation");
  return number;
}

template <class Number>
Number attribute(cublasLtMatrixLayout_t from, cublasLtMatrixLayoutAttribute_t what) {
  Number number{};
  std::size_t written = 0;
  if (cublas_lt().cublasLtMatrixLayoutGetAttribute(from, what, static_cast<void*>(&number),
                                                   sizeof(number),
                                                   &written) != CUBLAS_STATUS_SUCCESS)
    throw std::logic_error("no such attribute of a layout");
  return number;
}

cublasStatus_t heuristics(cublasLtHandle_t handle, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                          cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                          cublasLtMatmulPreference_t, int asked,
                          cublasLtMatmulHeuristicResult_t* results, int* count) {
  if (!is_ours(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  ++gpu().searches;
  if (gpu().heuristic != CUBLAS_STATUS_SUCCESS) return gpu().heuristic;
  *count = std::min(asked, static_cast<int>(gpu().algorithms.size()));
  for (int i = 0; i < *count; ++i) {
    const FakeAlgorithm& from = gpu().algorithms[static_cast<std::size_t>(i)];
    results[i] = {.algo = fake_algorithm(from.id),
                  .workspaceSize = from.workspace_bytes,
                  .state = from.state,
                  .wavesCount = 1};
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check(cublasLtHandle_t handle, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                     cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                     const cublasLtMatmulAlgo_t* algorithm,
                     cublasLtMatmulHeuristicResult_t* result) {
  if (!is_ours(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  const FakeAlgorithm* from = known(*algorithm);
  if (from == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (from->check != CUBLAS_STATUS_SUCCESS) return from->check;
  result->workspaceSize = from->workspace_bytes;
  result->state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t config(const cublasLtMatmulAlgo_t* algorithm,
                      cublasLtMatmulAlgoConfigAttributes_t what, void* buffer, std::size_t bytes,
                      std::size_t* written) {
  const FakeAlgorithm* from = known(*algorithm);
  if (from == nullptr || bytes != 4) return CUBLAS_STATUS_INVALID_VALUE;
  std::int32_t number = 0;
  switch (what) {
    case CUBLASLT_ALGO_CONFIG_ID:
      number = from->id;
      break;
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
      number = 1000 + from->id;
      break;
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:
      number = 2000 + from->id;
      break;
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
      number = from->split_k;
      break;
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
      number = static_cast<std::int32_t>(from->reduction);
      break;
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memcpy(buffer, &number, 4);
  *written = 4;
  return CUBLAS_STATUS_SUCCESS;
}

// A column-major matrix of a batch.
struct Matrix {
  std::byte* data;
  cudaDataType_t type;
  std::int64_t rows, cols, ld, stride;
  std::int32_t batch;

  Matrix(const void* from, cublasLtMatrixLayout_t layout)
      : data(static_cast<std::byte*>(const_cast<void*>(from))),
        type(static_cast<cudaDataType_t>(
            attribute<std::uint32_t>(layout, CUBLASLT_MATRIX_LAYOUT_TYPE))),
        rows(attribute<std::int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_ROWS)),
        cols(attribute<std::int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_COLS)),
        ld(attribute<std::int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_LD)),
        stride(attribute<std::int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)),
        batch(attribute<std::int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)) {}

  std::int64_t index(std::int64_t of, std::int64_t row, std::int64_t col) const {
    return of * stride + row + col * ld;
  }
};

float load(const void* data, cudaDataType_t type, std::int64_t index) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[index];
  const std::uint32_t high = static_cast<const std::uint16_t*>(data)[index];
  return std::bit_cast<float>(high << 16);
}

void store(void* data, cudaDataType_t type, std::int64_t index, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(data)[index] = value;
    return;
  }
  const auto bits = std::bit_cast<std::uint32_t>(value);
  static_cast<std::uint16_t*>(data)[index] =
      static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// GELU's tanh form and its slope, as papers write them, in f64.
double tanh_part(double x) {
  return std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x));
}

double gelu(double x) {
  return 0.5 * x * (1 + tanh_part(x));
}

double gelu_slope(double x) {
  const double t = tanh_part(x);
  const double inner = std::sqrt(2 / 3.14159265358979323846) * (1 + 3 * 0.044715 * x * x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner;
}

// Transforms a sum before it is stored in D.
class Epilogue {
 public:
  Epilogue(cublasLtMatmulDesc_t operation, const Matrix& d) {
    const auto which = static_cast<cublasLtEpilogue_t>(
        attribute<std::uint32_t>(operation, CUBLASLT_MATMUL_DESC_EPILOGUE));
    switch (which) {
      case CUBLASLT_EPILOGUE_DEFAULT:
      case CUBLASLT_EPILOGUE_BIAS:
        break;
      case CUBLASLT_EPILOGUE_GELU_AUX:
      case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        gelu_ = true;
        break;
      case CUBLASLT_EPILOGUE_DGELU:
        slope_ = true;
        break;
      default:
        throw std::logic_error("an epilogue that is not made here");
    }
    if (which == CUBLASLT_EPILOGUE_BIAS || which == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
      bias_ = attribute<const void*>(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
      bias_type_ = type_of(attribute<std::int32_t>(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE));
    }
    if (!gelu_ && !slope_) return;
    aux_ = attribute<void*>(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
    aux_ld_ = attribute<std::int64_t>(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);
    const auto type =
        attribute<std::int32_t>(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE);
    aux_type_ = type == -1 ? d.type : type_of(type);
    if (aux_ld_ % 8 != 0 || aux_ld_ < d.rows || reinterpret_cast<std::uintptr_t>(aux_) % 16 != 0 ||
        d.batch != 1)
      throw std::logic_error("an auxiliary matrix that the documentation rules out");
  }

  float operator()(float sum, std::int64_t row, std::int64_t col) const {
    if (bias_ != nullptr) sum += load(bias_, bias_type_, row);
    const std::int64_t at = row + col * aux_ld_;
    if (gelu_) {
      store(aux_, aux_type_, at, sum);
      return static_cast<float>(gelu(static_cast<double>(sum)));
    }
    if (slope_)
      sum *= static_cast<float>(gelu_slope(static_cast<double>(load(aux_, aux_type_, at))));
    return sum;
  }

 private:
  static cudaDataType_t type_of(std::int32_t number) { return static_cast<cudaDataType_t>(number); }

  bool gelu_ = false, slope_ = false;
  const void* bias_ = nullptr;
  cudaDataType_t bias_type_ = CUDA_R_32F;
  void* aux_ = nullptr;
  std::int64_t aux_ld_ = 0;
  cudaDataType_t aux_type_ = CUDA_R_32F;
};

void multiply(cublasLtMatmulDesc_t operation, float alpha, const Matrix& a, const Matrix& b,
              float beta, const Matrix& c, const Matrix& d) {
  const bool ta = attribute<std::int32_t>(operation, CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_T;
  const bool tb = attribute<std::int32_t>(operation, CUBLASLT_MATMUL_DESC_TRANSB) == CUBLAS_OP_T;
  const Epilogue epilogue(operation, d);
  const std::int64_t k = ta ? a.rows : a.cols;
  if ((ta ? a.cols : a.rows) != d.rows || (tb ? b.rows : b.cols) != d.cols ||
      (tb ? b.cols : b.rows) != k || a.batch != d.batch || b.batch != d.batch)
    throw std::logic_error("matrices that do not fit together");
  for (std::int32_t of = 0; of < d.batch; ++of) {
    for (std::int64_t col = 0; col < d.cols; ++col) {
      for (std::int64_t row = 0; row < d.rows; ++row) {
        float sum = 0;
        for (std::int64_t i = 0; i < k; ++i) {
          sum += load(a.data, a.type, ta ? a.index(of, i, row) : a.index(of, row, i)) *
                 load(b.data, b.type, tb ? b.index(of, col, i) : b.index(of, i, col));
        }
        sum *= alpha;
        if (beta != 0) sum += beta * load(c.data, c.type, c.index(of, row, col));
        store(d.data, d.type, d.index(of, row, col), epilogue(sum, row, col));
      }
    }
  }
}

cublasStatus_t matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha,
                      const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                      cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                      cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                      const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                      std::size_t workspace_bytes, cudaStream_t stream) {
  if (!is_ours(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  const FakeAlgorithm* from = known(*algorithm);
  if (from == nullptr || from->workspace_bytes > workspace_bytes)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (from->launch != CUBLAS_STATUS_SUCCESS) return from->launch;
  gpu().clock += from->seconds;
  gpu().launches.push_back(
      {.algorithm = from->id,
       .a = a,
       .b = b,
       .d = d,
       .aux = attribute<void*>(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER),
       .workspace = workspace,
       .workspace_bytes = workspace_bytes,
       .stream = stream});
  if (gpu().computes) {
    multiply(operation, *static_cast<const float*>(alpha), Matrix(a, a_layout), Matrix(b, b_layout),
             *static_cast<const float*>(beta), Matrix(c, c_layout), Matrix(d, d_layout));
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

FakeGpu& new_fake_gpu() {
  gpu() = FakeGpu();
  return gpu();
}

cuda::CublasLt fake_cublas_lt() {
  cuda::CublasLt lt = cublas_lt();
  lt.cublasLtCreate = create;
  lt.cublasLtDestroy = destroy;
  lt.cublasLtMatmulAlgoGetHeuristic = heuristics;
  lt.cublasLtMatmulAlgoCheck = check;
  lt.cublasLtMatmulAlgoConfigGetAttribute = config;
  lt.cublasLtMatmul = matmul;
  return lt;
}

cublasLtMatmulAlgo_t fake_algorithm(int id) {
  cublasLtMatmulAlgo_t made{};
  for (std::uint64_t i = 0; i < 8; ++i)
    made.data[i] = kMark | i << 32 | static_cast<std::uint32_t>(id);
  return made;
}

}  // namespace tessera::trainer::test
