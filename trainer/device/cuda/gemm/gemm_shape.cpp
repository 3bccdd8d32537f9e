// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/gemm/gemm_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string_view>

#include "lib/base/error.h"

namespace tessera::trainer::cuda {

namespace {

// Returns the largest power of two that divides the address, at most kGemmAlignment.
int alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  constexpr std::uintptr_t kMost = kGemmAlignment;
  return static_cast<int>(std::min(address & (~address + 1), kMost) + (address == 0 ? kMost : 0));
}

// The leading dimension of a single row means nothing and may be anything.
std::int64_t leading_dimension(const Tensor& t) {
  return t.rows == 1 ? t.cols : t.ld;
}

// Returns whether the matrices of a batch are disjoint: one after another, or side by side in rows
// that are long enough for all.
bool is_disjoint(const GemmMatrix& d, std::int64_t batch) {
  return batch == 1 || d.stride >= (d.rows - 1) * d.ld + d.cols ||
         (d.stride >= d.cols && (batch - 1) * d.stride + d.cols <= d.ld);
}

}  // namespace

GemmShape shape_of(const Gemm& op, bool tf32) {
  GemmShape shape{.m = op.d.rows,
                  .n = op.d.cols,
                  .k = op.transpose_a ? op.a.rows : op.a.cols,
                  .lda = leading_dimension(op.a),
                  .ldb = leading_dimension(op.b),
                  .ldd = leading_dimension(op.d),
                  .transpose_a = op.transpose_a,
                  .transpose_b = op.transpose_b,
                  .in = op.a.dtype,
                  .out = op.d.dtype,
                  .tf32 = tf32 && op.a.dtype == DType::f32,
                  .accumulate = op.accumulate,
                  .bias = static_cast<bool>(op.bias),
                  .align_a = alignment_of(op.a.data),
                  .align_b = alignment_of(op.b.data),
                  .align_d = alignment_of(op.d.data)};
  if (op.bias) shape.align_bias = alignment_of(op.bias.data);
  if (op.epilogue != GemmEpilogue::none) {
    shape.epilogue = op.epilogue;
    shape.ld_pre = op.pre.ld;
    shape.align_pre = alignment_of(op.pre.data);
  }
  return shape;
}

void check(const GemmShape& s) {
  const auto need = [&](bool holds, std::string_view what) {
    if (!holds) throw Error(ExitCode::internal, "gemm " + to_text(s), what);
  };
  const auto supported = [&](bool holds, std::string_view what) {
    if (!holds) throw Error(ExitCode::unsupported, "gemm " + to_text(s), what);
  };
  const bool is_bf16 = s.in == DType::bf16;
  supported(is_bf16 || s.in == DType::f32, "GPUs multiply f32 and bf16 matrices only");
  need(s.out == s.in || (is_bf16 && s.out == DType::f32),
       "D is neither of the factors' dtype nor f32");
  need(!s.tf32 || !is_bf16, "TF32 is for f32 factors");
  need(!s.bias || !s.accumulate, "a bias and accumulate exclude each other");
  supported(!s.bias || s.out == s.in, "cuBLASLt adds no bf16 bias to an f32 D");
  supported(!s.bias || s.batch == 1, "no bias is added in a batch");
  const bool has_pre = s.epilogue != GemmEpilogue::none;
  need(!has_pre || !s.accumulate, "an epilogue and accumulate exclude each other");
  need(!s.bias || s.epilogue != GemmEpilogue::dgelu, "dgelu and a bias exclude each other");
  supported(!has_pre || s.out == s.in, "cuBLASLt has no epilogue for an f32 D of bf16 factors");
  supported(!has_pre || s.batch == 1, "no epilogue is in a batch");
  supported(!has_pre || (s.ld_pre % kPreElements == 0 && s.align_pre >= kPreAlignment),
            "cuBLASLt's epilogues take rows at multiples of 8 elements, from one of 16 bytes on");
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  for (const std::int64_t size : {s.m, s.n, s.k, s.batch})
    need(size >= 1 && size <= kMost, "a size is not between 1 and 2^31 - 1");
  // Without an epilogue, D is checked in place of its argument.
  for (const GemmMatrix& each :
       {matrix_a(s), matrix_b(s), matrix_d(s), has_pre ? matrix_pre(s) : matrix_d(s)}) {
    need(each.ld >= each.cols && each.ld <= kMost,
         "a leading dimension is shorter than its rows, or over 2^31 - 1");
    need(each.stride >= 0, "a stride is negative");
    need(std::has_single_bit(static_cast<unsigned>(each.alignment)) &&
             each.alignment >= bytes_of(each.dtype) && each.alignment <= kGemmAlignment,
         "a matrix is not aligned to its elements");
  }
  need(is_disjoint(matrix_d(s), s.batch), "matrices of D overlap");
}

std::string to_text(const GemmShape& s) {
  std::string text = fmt::format("m{} n{} k{} {}{} {}>{}", s.m, s.n, s.k, s.transpose_a ? 't' : 'n',
                                 s.transpose_b ? 't' : 'n', to_text(s.in), to_text(s.out));
  if (s.tf32) text += " tf32";
  if (s.accumulate) text += " acc";
  if (s.bias) text += " bias";
  const bool has_pre = s.epilogue != GemmEpilogue::none;
  if (has_pre) text += s.epilogue == GemmEpilogue::gelu ? " gelu" : " dgelu";
  const GemmMatrix a = matrix_a(s);
  const GemmMatrix b = matrix_b(s);
  if (a.ld != a.cols) text += fmt::format(" lda{}", a.ld);
  if (b.ld != b.cols) text += fmt::format(" ldb{}", b.ld);
  if (s.ldd != s.n) text += fmt::format(" ldd{}", s.ldd);
  if (has_pre && s.ld_pre != s.n) text += fmt::format(" ldpre{}", s.ld_pre);
  if (s.batch != 1)
    text += fmt::format(" batch{} sa{} sb{} sd{}", s.batch, s.stride_a, s.stride_b, s.stride_d);
  text += fmt::format(" a{}", s.align_a);
  const bool is_one = s.align_b == s.align_a && s.align_d == s.align_a &&
                      (!s.bias || s.align_bias == s.align_a) &&
                      (!has_pre || s.align_pre == s.align_a);
  if (!is_one) {
    text += fmt::format(",{},{}", s.align_b, s.align_d);
    if (s.bias) text += fmt::format(",{}", s.align_bias);
    if (has_pre) text += fmt::format(",{}", s.align_pre);
  }
  return text;
}

std::size_t GemmShapeHash::operator()(const GemmShape& s) const {
  std::uint64_t hash = 0;
  const auto add = [&](auto value) {
    hash = std::rotl(hash ^ static_cast<std::uint64_t>(value), 23) * 0x9E3779B97F4A7C15U;
  };
  for (const std::int64_t size :
       {s.m, s.n, s.k, s.lda, s.ldb, s.ldd, s.ld_pre, s.batch, s.stride_a, s.stride_b, s.stride_d})
    add(size);
  for (const int alignment : {s.align_a, s.align_b, s.align_d, s.align_bias, s.align_pre})
    add(alignment);
  for (const bool flag : {s.transpose_a, s.transpose_b, s.tf32, s.accumulate, s.bias}) add(flag);
  add(s.in);
  add(s.out);
  add(s.epilogue);
  return hash ^ (hash >> 32);
}

GemmMatrix matrix_a(const GemmShape& s) {
  return {.dtype = s.in,
          .rows = s.transpose_a ? s.k : s.m,
          .cols = s.transpose_a ? s.m : s.k,
          .ld = s.lda,
          .stride = s.stride_a,
          .alignment = s.align_a};
}

GemmMatrix matrix_b(const GemmShape& s) {
  return {.dtype = s.in,
          .rows = s.transpose_b ? s.n : s.k,
          .cols = s.transpose_b ? s.k : s.n,
          .ld = s.ldb,
          .stride = s.stride_b,
          .alignment = s.align_b};
}

GemmMatrix matrix_d(const GemmShape& s) {
  return {.dtype = s.out,
          .rows = s.m,
          .cols = s.n,
          .ld = s.ldd,
          .stride = s.stride_d,
          .alignment = s.align_d};
}

GemmMatrix matrix_pre(const GemmShape& s) {
  return {.dtype = s.out,
          .rows = s.m,
          .cols = s.n,
          .ld = s.ld_pre,
          .stride = 0,
          .alignment = s.align_pre};
}

std::int64_t bytes_of(const GemmMatrix& x, std::int64_t batch) {
  return ((batch - 1) * x.stride + (x.rows - 1) * x.ld + x.cols) * bytes_of(x.dtype);
}

}  // namespace tessera::trainer::cuda
