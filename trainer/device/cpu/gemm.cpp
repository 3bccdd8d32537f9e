// SPDX-License-Identifier: Apache-2.0
// GEMMs by OpenBLAS.
//
// f32 and f64 go to sgemm and dgemm as they are. bf16 goes by blocks: panels of A and B are
// converted to f32 (exactly) and multiplied by sgemm into f32. Each element of D is rounded once,
// after the bias or the old D was added in f32. If D is f32, sgemm works on D itself. The blocks
// bound the scratch to 56 MiB whatever the shape; converting costs 6 bytes an element against 2000
// FLOPs or more. An epilogue works on the sums: those in the scratch or, for f32 and f64, those
// stored, which are the same.
#include <cblas.h>

#include <algorithm>
#include <array>

#include "trainer/device/cpu/operations.h"
#include "trainer/device/cpu/typed.h"

namespace tessera::trainer::cpu {
namespace {

constexpr std::int64_t kBlockM = 1024;
constexpr std::int64_t kBlockN = 2048;
constexpr std::int64_t kBlockK = 4096;

struct Sizes {
  std::int64_t m, n, k;
};

Sizes sizes(const Gemm& op) {
  return {op.d.rows, op.d.cols, op.transpose_a ? op.a.rows : op.a.cols};
}

struct Blocks {
  std::int64_t m, n, k;
  std::int64_t a() const { return m * k; }
  std::int64_t b() const { return n * k; }
};

Blocks blocks(const Sizes& s) {
  return {std::min(s.m, kBlockM), std::min(s.n, kBlockN), std::min(s.k, kBlockK)};
}

void multiply(bool transpose_a, bool transpose_b, const Sizes& s, const float* a, std::int64_t lda,
              const float* b, std::int64_t ldb, float beta, float* d, std::int64_t ldd) {
  cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
              transpose_b ? CblasTrans : CblasNoTrans, static_cast<blasint>(s.m),
              static_cast<blasint>(s.n), static_cast<blasint>(s.k), 1.0F, a,
              static_cast<blasint>(lda), b, static_cast<blasint>(ldb), beta, d,
              static_cast<blasint>(ldd));
}

void multiply(bool transpose_a, bool transpose_b, const Sizes& s, const double* a, std::int64_t lda,
              const double* b, std::int64_t ldb, double beta, double* d, std::int64_t ldd) {
  cblas_dgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
              transpose_b ? CblasTrans : CblasNoTrans, static_cast<blasint>(s.m),
              static_cast<blasint>(s.n), static_cast<blasint>(s.k), 1.0, a,
              static_cast<blasint>(lda), b, static_cast<blasint>(ldb), beta, d,
              static_cast<blasint>(ldd));
}

// f32 and f64. The sum starts from the bias.
template <class S>
void run_plain(const Gemm& op, const Context& context) {
  const auto& kernels = storage<S>(context.kernels);
  const Tensor& sums = op.epilogue == GemmEpilogue::gelu ? op.pre : op.d;
  if (op.bias) {
    for_blocks(sums.rows, sums.cols, [&](std::int64_t r, std::int64_t c, std::int64_t n) {
      kernels.load(elements<S>(op.bias) + c, row<S>(sums, r) + c, n);
    });
  }
  multiply(op.transpose_a, op.transpose_b, sizes(op), elements<S>(op.a), op.a.ld, elements<S>(op.b),
           op.b.ld, op.accumulate || op.bias ? S(1) : S(0), elements<S>(sums), sums.ld);
  if (op.epilogue == GemmEpilogue::none) return;
  for_blocks(op.d.rows, op.d.cols, [&](std::int64_t r, std::int64_t c, std::int64_t n) {
    const S* pre = row<S>(op.pre, r) + c;
    S* d = row<S>(op.d, r) + c;
    if (op.epilogue == GemmEpilogue::gelu) {
      kernels.act_forward(Act::gelu_tanh, pre, nullptr, d, n);
    } else {
      kernels.act_backward(Act::gelu_tanh, pre, nullptr, d, d, nullptr, n);
    }
  });
}

// Converts `rows` rows and `cols` columns of a bf16 matrix to packed f32.
void convert(const Tensor& t, std::int64_t first_row, std::int64_t first_col, std::int64_t rows,
             std::int64_t cols, float* packed, const Context& context) {
  const auto load = context.kernels.bf16.load;
#pragma omp parallel for schedule(static)
  for (std::int64_t r = 0; r < rows; ++r) {
    load(row<Bf16>(t, first_row + r) + first_col, packed + r * cols, cols);
  }
}

// Stores a row of sums as a row of D, from column `first` on. It overwrites the sums.
void store_row(const Gemm& op, std::int64_t r, std::int64_t first, float* sums, std::int64_t cols,
               const Context& context) {
  const auto& bf16 = context.kernels.bf16;
  const Bf16* bias = op.bias ? elements<Bf16>(op.bias) + first : nullptr;
  Bf16* d = row<Bf16>(op.d, r) + first;
  if (op.epilogue == GemmEpilogue::none) return bf16.store(sums, bias, d, cols, op.accumulate);
  Bf16* pre = row<Bf16>(op.pre, r) + first;
  if (op.epilogue == GemmEpilogue::gelu) {
    if (bias != nullptr) bf16.add_to(bias, sums, cols);
    bf16.store(sums, nullptr, pre, cols, false);
    context.kernels.f32.act_forward(Act::gelu_tanh, sums, nullptr, sums, cols);
  } else {
    std::array<float, kBlockN> at;  // NOLINT(cppcoreguidelines-pro-type-member-init): load fills it
    bf16.load(pre, at.data(), cols);
    context.kernels.f32.act_backward(Act::gelu_tanh, at.data(), nullptr, sums, sums, nullptr, cols);
  }
  bf16.store(sums, nullptr, d, cols, false);
}

// bf16, block by block: n outermost, so that a panel of B is converted once if k is one block.
void run_bf16(const Gemm& op, const Context& context) {
  const Sizes s = sizes(op);
  const Blocks block = blocks(s);
  auto* a = reinterpret_cast<float*>(context.workspace.data());
  float* b = a + block.a();
  float* scratch = b + block.b();
  const bool direct = op.d.dtype == DType::f32;
  const bool one_k_block = s.k <= block.k;
  for (std::int64_t n = 0; n < s.n; n += block.n) {
    for (std::int64_t m = 0; m < s.m; m += block.m) {
      const std::int64_t rows = std::min(block.m, s.m - m);
      const std::int64_t cols = std::min(block.n, s.n - n);
      float* d = direct ? row<float>(op.d, m) + n : scratch;
      const std::int64_t ldd = direct ? op.d.ld : cols;
      if (direct && op.bias) {
        for (std::int64_t r = 0; r < rows; ++r) {
          context.kernels.bf16.load(elements<Bf16>(op.bias) + n, d + r * ldd, cols);
        }
      }
      for (std::int64_t k = 0; k < s.k; k += block.k) {
        const std::int64_t depth = std::min(block.k, s.k - k);
        if (op.transpose_a) {
          convert(op.a, k, m, depth, rows, a, context);
        } else {
          convert(op.a, m, k, rows, depth, a, context);
        }
        if (m == 0 || !one_k_block) {
          if (op.transpose_b) {
            convert(op.b, n, k, cols, depth, b, context);
          } else {
            convert(op.b, k, n, depth, cols, b, context);
          }
        }
        const bool add = k > 0 || (direct && (op.accumulate || op.bias));
        multiply(op.transpose_a, op.transpose_b, {rows, cols, depth}, a,
                 op.transpose_a ? rows : depth, b, op.transpose_b ? depth : cols, add ? 1.0F : 0.0F,
                 d, ldd);
      }
      if (direct) continue;
#pragma omp parallel for schedule(static)
      for (std::int64_t r = 0; r < rows; ++r) store_row(op, m + r, n, d + r * ldd, cols, context);
    }
  }
}

}  // namespace

std::int64_t gemm_workspace_bytes(const Gemm& op) {
  if (op.a.dtype != DType::bf16) return 0;
  const Blocks block = blocks(sizes(op));
  const std::int64_t d = op.d.dtype == DType::f32 ? 0 : block.m * block.n;
  return (block.a() + block.b() + d) * static_cast<std::int64_t>(sizeof(float));
}

void run(const Gemm& op, const Context& context) {
  switch (op.a.dtype) {
    case DType::f32:
      return run_plain<float>(op, context);
    case DType::f64:
      return run_plain<double>(op, context);
    default:
      return run_bf16(op, context);
  }
}

}  // namespace tessera::trainer::cpu
