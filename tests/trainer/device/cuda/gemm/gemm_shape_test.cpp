// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/gemm/gemm_shape.h"

#include <doctest/doctest.h>

#include <set>
#include <vector>

#include "lib/base/error.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::cuda;

namespace {

// Returns a tensor at an address that nobody reads.
Tensor at(std::uintptr_t address, DType dtype, std::int64_t rows, std::int64_t cols,
          std::int64_t ld) {
  return {reinterpret_cast<void*>(address), dtype, rows, cols, ld};
}

ExitCode fault(const GemmShape& shape) {
  try {
    check(shape);
  } catch (const Error& error) {
    CHECK(error.where() == "gemm " + to_text(shape));
    return error.code();
  }
  return ExitCode::ok;
}

GemmShape square() {
  return {.m = 64, .n = 64, .k = 64, .lda = 64, .ldb = 64, .ldd = 64};
}

GemmShape with(GemmEpilogue epilogue) {
  GemmShape s = square();
  s.epilogue = epilogue;
  s.ld_pre = 64;
  return s;
}

GemmShape batched() {
  GemmShape s = square();
  s.batch = 4;
  s.stride_a = s.stride_b = s.stride_d = 64 * 64;
  return s;
}

}  // namespace

TEST_CASE("a linear layer's product has the sizes, dtypes and alignments of its tensors") {
  const Gemm op{.a = at(0x10000, DType::bf16, 4096, 1024, 1024),
                .b = at(0x20080, DType::bf16, 3072, 1024, 1024),
                .d = at(0x30010, DType::bf16, 4096, 3072, 3200),
                .bias = at(0x40002, DType::bf16, 1, 3072, 3072)};
  const GemmShape s = shape_of(op, true);
  CHECK(to_text(s) == "m4096 n3072 k1024 nt bf16>bf16 bias ldd3200 a256,128,16,2");
  CHECK(s == GemmShape{.m = 4096,
                       .n = 3072,
                       .k = 1024,
                       .lda = 1024,
                       .ldb = 1024,
                       .ldd = 3200,
                       .bias = true,
                       .align_a = 256,
                       .align_b = 128,
                       .align_d = 16,
                       .align_bias = 2});
  CHECK(fault(s) == ExitCode::ok);
}

TEST_CASE("an epilogue's product has its argument's rows and alignment") {
  Gemm op{.a = at(0x10000, DType::bf16, 4096, 1024, 1024),
          .b = at(0x20000, DType::bf16, 3072, 1024, 1024),
          .d = at(0x30000, DType::bf16, 4096, 3072, 3072),
          .bias = at(0x40000, DType::bf16, 1, 3072, 3072),
          .epilogue = GemmEpilogue::gelu,
          .pre = at(0x50000, DType::bf16, 4096, 3072, 3072)};
  GemmShape s = shape_of(op, false);
  CHECK(to_text(s) == "m4096 n3072 k1024 nt bf16>bf16 bias gelu a256");
  CHECK(s.ld_pre == 3072);
  CHECK(fault(s) == ExitCode::ok);
  op.pre = at(0x50020, DType::bf16, 4096, 3072, 3200);
  CHECK(to_text(shape_of(op, false)) ==
        "m4096 n3072 k1024 nt bf16>bf16 bias gelu ldpre3200 a256,256,256,256,32");
  op.bias = {};
  op.epilogue = GemmEpilogue::dgelu;
  s = shape_of(op, false);
  CHECK(to_text(s) == "m4096 n3072 k1024 nt bf16>bf16 dgelu ldpre3200 a256,256,256,32");
  CHECK(fault(s) == ExitCode::ok);
  CHECK(matrix_pre(s).rows == 4096);
  CHECK(matrix_pre(s).cols == 3072);
  CHECK(bytes_of(matrix_pre(s), 1) == (4095 * 3200 + 3072) * 2);
}

TEST_CASE("a weight gradient's product has its k along the rows of both factors") {
  const Gemm op{.a = at(0x1000, DType::bf16, 4096, 3072, 3072),
                .b = at(0x2000, DType::bf16, 4096, 1024, 1024),
                .d = at(0x3000, DType::f32, 3072, 1024, 1024),
                .transpose_a = true,
                .transpose_b = false,
                .accumulate = true};
  CHECK(to_text(shape_of(op, true)) == "m3072 n1024 k4096 tn bf16>f32 acc a256");
}

TEST_CASE("TF32 is for f32 products alone") {
  Gemm op{.a = at(0x1000, DType::f32, 8, 4, 4),
          .b = at(0x2000, DType::f32, 6, 4, 4),
          .d = at(0x3000, DType::f32, 8, 6, 6)};
  CHECK(to_text(shape_of(op, true)) == "m8 n6 k4 nt f32>f32 tf32 a256");
  CHECK(to_text(shape_of(op, false)) == "m8 n6 k4 nt f32>f32 a256");
  op.a.dtype = op.b.dtype = DType::bf16;
  CHECK(to_text(shape_of(op, true)) == "m8 n6 k4 nt bf16>f32 a256");
}

TEST_CASE("a single row's leading dimension, which may be anything, is that of a row without gap") {
  const Gemm op{.a = at(0x1000, DType::f32, 1, 4, 0),
                .b = at(0x2000, DType::f32, 6, 4, 4),
                .d = at(0x3000, DType::f32, 1, 6, 900)};
  const GemmShape s = shape_of(op, false);
  CHECK(s.lda == 4);
  CHECK(s.ldd == 6);
  CHECK(fault(s) == ExitCode::ok);
}

TEST_CASE("shapes that differ in anything differ in text, value and hash") {
  std::vector<GemmShape> shapes{square()};
  const auto add = [&](auto change) {
    GemmShape s = square();
    change(s);
    shapes.push_back(s);
  };
  add([](GemmShape& s) { s.m = 63; });
  add([](GemmShape& s) { s.n = 63; });
  add([](GemmShape& s) { s.k = 63; });
  add([](GemmShape& s) { s.lda = 72; });
  add([](GemmShape& s) { s.ldb = 72; });
  add([](GemmShape& s) { s.ldd = 72; });
  add([](GemmShape& s) { s.transpose_a = true; });
  add([](GemmShape& s) { s.transpose_b = false; });
  add([](GemmShape& s) { s.transpose_a = true, s.transpose_b = false; });
  add([](GemmShape& s) { s.out = DType::f32; });
  add([](GemmShape& s) { s.in = s.out = DType::f32; });
  add([](GemmShape& s) { s.in = s.out = DType::f32, s.tf32 = true; });
  add([](GemmShape& s) { s.accumulate = true; });
  add([](GemmShape& s) { s.bias = true; });
  add([](GemmShape& s) { s.bias = true, s.align_bias = 16; });
  for (const GemmEpilogue epilogue : {GemmEpilogue::gelu, GemmEpilogue::dgelu}) {
    add([&](GemmShape& s) { s = with(epilogue); });
    add([&](GemmShape& s) { s = with(epilogue), s.ld_pre = 72; });
    add([&](GemmShape& s) { s = with(epilogue), s.align_pre = 16; });
    add([&](GemmShape& s) { s = with(epilogue), s.in = s.out = DType::f32; });
  }
  add([](GemmShape& s) { s = with(GemmEpilogue::gelu), s.bias = true; });
  add([](GemmShape& s) { s = with(GemmEpilogue::gelu), s.bias = true, s.align_bias = 16; });
  add([](GemmShape& s) { s = with(GemmEpilogue::gelu), s.bias = true, s.align_pre = 16; });
  for (const int alignment : {2, 16, 128}) {
    add([&](GemmShape& s) { s.align_a = alignment; });
    add([&](GemmShape& s) { s.align_b = alignment; });
    add([&](GemmShape& s) { s.align_d = alignment; });
    add([&](GemmShape& s) { s.align_a = s.align_b = s.align_d = alignment; });
  }
  add([](GemmShape& s) { s = batched(); });
  add([](GemmShape& s) { s = batched(), s.batch = 5; });
  add([](GemmShape& s) { s = batched(), s.stride_a = 0; });
  add([](GemmShape& s) { s = batched(), s.stride_b = 0; });
  add([](GemmShape& s) { s = batched(), s.stride_d = 8192; });
  std::set<std::string> texts;
  std::set<std::size_t> hashes;
  for (const GemmShape& s : shapes) {
    texts.insert(to_text(s));
    hashes.insert(GemmShapeHash()(s));
    CHECK(fault(s) == ExitCode::ok);
    CHECK(std::ranges::count(shapes, s) == 1);
  }
  CHECK(texts.size() == shapes.size());
  CHECK(hashes.size() == shapes.size());
}

TEST_CASE("what cuBLASLt is not asked for is refused as unsupported") {
  GemmShape f64 = square();
  f64.in = f64.out = DType::f64;
  CHECK(fault(f64) == ExitCode::unsupported);
  GemmShape wide_bias = square();
  wide_bias.out = DType::f32;
  wide_bias.bias = true;
  CHECK(fault(wide_bias) == ExitCode::unsupported);
  for (const GemmEpilogue epilogue : {GemmEpilogue::gelu, GemmEpilogue::dgelu}) {
    const auto changed = [&](auto change) {
      GemmShape s = with(epilogue);
      change(s);
      return fault(s);
    };
    CHECK(changed([](GemmShape& s) { s.out = DType::f32; }) == ExitCode::unsupported);
    CHECK(changed([](GemmShape& s) { s.batch = 2, s.stride_d = 4096; }) == ExitCode::unsupported);
    CHECK(changed([](GemmShape& s) { s.ld_pre = 68; }) == ExitCode::unsupported);
    CHECK(changed([](GemmShape& s) { s.align_pre = 8; }) == ExitCode::unsupported);
    CHECK(changed([](GemmShape& s) { s.ld_pre = 56; }) == ExitCode::internal);
    CHECK(changed([](GemmShape& s) { s.align_pre = 48; }) == ExitCode::internal);
    CHECK(changed([](GemmShape& s) { s.accumulate = true; }) == ExitCode::internal);
  }
  GemmShape slope_bias = with(GemmEpilogue::dgelu);
  slope_bias.bias = true;
  CHECK(fault(slope_bias) == ExitCode::internal);
  GemmShape batch_bias = batched();
  batch_bias.bias = true;
  CHECK(fault(batch_bias) == ExitCode::unsupported);
}

TEST_CASE("what does not fit together is a fault of ours") {
  const auto changed = [](GemmShape s, auto change) {
    change(s);
    return fault(s);
  };
  const auto internal = ExitCode::internal;
  CHECK(changed(square(), [](GemmShape& s) { s.k = 0; }) == internal);
  CHECK(changed(square(), [](GemmShape& s) { s.m = std::int64_t{1} << 31; }) == internal);
  CHECK(changed(square(), [](GemmShape& s) { s.lda = 63; }) == internal);
  CHECK(changed(square(), [](GemmShape& s) { s.ldd = 63; }) == internal);
  CHECK(changed(square(), [](GemmShape& s) { s.align_a = 48; }) == internal);
  CHECK(changed(square(), [](GemmShape& s) { s.align_b = 1; }) == internal);
  CHECK(changed(square(), [](GemmShape& s) { s.align_d = 512; }) == internal);
  CHECK(changed(square(), [](GemmShape& s) { s.tf32 = true; }) == internal);
  CHECK(changed(square(), [](GemmShape& s) { s.bias = s.accumulate = true; }) == internal);
  CHECK(changed(square(), [](GemmShape& s) { s.in = DType::f32; }) == internal);
  CHECK(changed(batched(), [](GemmShape& s) { s.stride_a = -1; }) == internal);
  CHECK(changed(batched(), [](GemmShape& s) { s.batch = 0; }) == internal);
}

TEST_CASE("matrices of D in a batch lie behind one another or side by side, but never overlap") {
  GemmShape s = batched();
  s.stride_d = 64 * 64 - 1;
  CHECK(fault(s) == ExitCode::internal);
  // Heads side by side in rows of four heads, and in rows that hold three and a half.
  s.ldd = 256;
  s.stride_d = 64;
  CHECK(fault(s) == ExitCode::ok);
  s.ldd = 255;
  CHECK(fault(s) == ExitCode::internal);
  s.ldd = 256;
  s.stride_d = 63;
  CHECK(fault(s) == ExitCode::internal);
}

TEST_CASE("a matrix's bytes reach from its first element to its last, over the batch") {
  GemmShape s = square();
  s.k = 32;
  s.lda = 40;
  CHECK(bytes_of(matrix_a(s), 1) == (63 * 40 + 32) * 2);
  CHECK(matrix_b(s).rows == 64);
  CHECK(matrix_b(s).cols == 32);
  s.transpose_b = false;
  CHECK(matrix_b(s).rows == 32);
  CHECK(matrix_b(s).cols == 64);
  s.out = DType::f32;
  CHECK(bytes_of(matrix_d(s), 1) == 64 * 64 * 4);
  GemmShape heads = batched();
  heads.ldd = 256;
  heads.stride_d = 64;
  CHECK(bytes_of(matrix_d(heads), heads.batch) == (3 * 64 + 63 * 256 + 64) * 2);
  heads.stride_b = 0;
  CHECK(bytes_of(matrix_b(heads), heads.batch) == 64 * 64 * 2);
}
