// SPDX-License-Identifier: Apache-2.0
// GEMM plans on a fake GPU (fake_cublaslt.h). If its results are those of the CPU device,
// descriptors, pointers and factors mean our operations.
#include "trainer/device/cuda/gemm/gemm.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "tests/trainer/device/cuda/gemm/gemm_bench.h"
#include "trainer/device/device.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::cuda;
using namespace tessera::trainer::test;

namespace {

// Returns whole numbers so small that sums of up to 16 products are exact, even in bf16.
float whole_number(std::uint64_t i) {
  return static_cast<float>((i * 2654435761U >> 7) % 7) - 3;
}

void set_number(std::span<std::byte> bytes, DType dtype, std::size_t i, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (dtype == DType::f32) {
    std::memcpy(bytes.data() + 4 * i, &bits, 4);
  } else {
    const auto high = static_cast<std::uint16_t>(bits >> 16);
    std::memcpy(bytes.data() + 2 * i, &high, 2);
  }
}

float number(std::span<const std::byte> bytes, DType dtype, std::size_t i) {
  std::uint32_t bits = 0;
  if (dtype == DType::f32) {
    std::memcpy(&bits, bytes.data() + 4 * i, 4);
  } else {
    std::uint16_t high = 0;
    std::memcpy(&high, bytes.data() + 2 * i, 2);
    bits = static_cast<std::uint32_t>(high) << 16;
  }
  return std::bit_cast<float>(bits);
}

// A matrix of whole numbers, in the gaps between rows too.
struct Numbers {
  Memory memory;
  Tensor tensor;

  Numbers(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t gap, std::uint64_t seed)
      : memory(static_cast<std::size_t>(rows * (cols + gap) * bytes_of(dtype))),
        tensor{memory.bytes().data(), dtype, rows, cols, cols + gap} {
    for (std::int64_t i = 0; i < rows * tensor.ld; ++i)
      set_number(memory.bytes(), dtype, static_cast<std::size_t>(i),
                 whole_number(seed * 7919 + static_cast<std::uint64_t>(i)));
  }
  std::vector<std::byte> copy() const { return {memory.bytes().begin(), memory.bytes().end()}; }
};

// Returns the operation's D, gaps included, as the CPU device computes it.
std::vector<std::byte> on_cpu(const Gemm& op, const Numbers& d) {
  const auto device = cpu_device(1);
  const std::vector<Op> all{op};
  const std::int64_t bytes = device->workspace_bytes(op);
  std::byte* workspace = device->allocate(Pool::device, std::max<std::int64_t>(bytes, 256));
  device->prepare(all, {workspace, static_cast<std::size_t>(bytes)});
  device->seal();
  device->run(Stream::compute, op, {});
  return d.copy();
}

}  // namespace

TEST_CASE("every kind of product computes what the CPU device does") {
  Bench bench;
  struct Kind {
    DType in, out;
    bool accumulate, bias;
  };
  const Kind kinds[] = {
      {DType::f32, DType::f32, false, false},  {DType::f32, DType::f32, true, false},
      {DType::f32, DType::f32, false, true},   {DType::bf16, DType::bf16, false, false},
      {DType::bf16, DType::bf16, true, false}, {DType::bf16, DType::bf16, false, true},
      {DType::bf16, DType::f32, false, false}, {DType::bf16, DType::f32, true, false}};
  int count = 0;
  for (const Kind& kind : kinds) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        for (const std::int64_t gap : {0, 3}) {
          const std::int64_t m = 13;
          const std::int64_t n = 10;
          const std::int64_t k = 7;
          const Numbers a(kind.in, transpose_a ? k : m, transpose_a ? m : k, gap, 1);
          const Numbers b(kind.in, transpose_b ? n : k, transpose_b ? k : n, gap, 2);
          const Numbers bias(kind.in, 1, n, 0, 3);
          const Numbers expected(kind.out, m, n, gap, 4);
          const Numbers got(kind.out, m, n, gap, 4);
          Gemm op{.a = a.tensor,
                  .b = b.tensor,
                  .d = expected.tensor,
                  .transpose_a = transpose_a,
                  .transpose_b = transpose_b,
                  .accumulate = kind.accumulate};
          if (kind.bias) op.bias = bias.tensor;
          const std::vector<std::byte> wanted = on_cpu(op, expected);
          op.d = got.tensor;
          CAPTURE(to_text(shape_of(op, false)));
          GemmPlans plans(bench.lt, false);
          bench.prepare(plans, {shape_of(op, false)});
          const std::vector<std::byte> before = got.copy();
          plans.run(op, nullptr);
          CHECK(got.copy() == wanted);
          CHECK(got.copy() != before);
          ++count;
        }
      }
    }
  }
  CHECK(count == 64);
}

// The results differ in bits: one side has the CPU device's exponentials, the other the C
// library's.
TEST_CASE("products with a GELU compute what the CPU device does, and their argument to the bit") {
  Bench bench;
  const std::int64_t m = 13;
  const std::int64_t n = 10;
  const std::int64_t k = 7;
  int count = 0;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const GemmEpilogue epilogue : {GemmEpilogue::gelu, GemmEpilogue::dgelu}) {
      for (const bool with_bias : {false, true}) {
        if (with_bias && epilogue == GemmEpilogue::dgelu) continue;
        for (const int transposes : {0, 1, 2, 3}) {
          const bool transpose_a = transposes % 2 == 1;
          const bool transpose_b = transposes / 2 == 1;
          Numbers a(dtype, transpose_a ? k : m, transpose_a ? m : k, 3, 1);
          const Numbers b(dtype, transpose_b ? n : k, transpose_b ? k : n, 0, 2);
          const Numbers bias(dtype, 1, n, 0, 3);
          // The sums are a few units, where a GELU bends.
          for (std::size_t i = 0; i < static_cast<std::size_t>(a.tensor.rows * a.tensor.ld); ++i)
            set_number(a.memory.bytes(), dtype, i, number(a.memory.bytes(), dtype, i) / 8);
          const Numbers expected(dtype, m, n, 3, 4);
          const Numbers got(dtype, m, n, 3, 4);
          const Numbers pre_expected(dtype, m, n, 6, 5);
          const Numbers pre_got(dtype, m, n, 6, 5);
          Gemm op{.a = a.tensor,
                  .b = b.tensor,
                  .d = expected.tensor,
                  .transpose_a = transpose_a,
                  .transpose_b = transpose_b,
                  .epilogue = epilogue,
                  .pre = pre_expected.tensor};
          if (with_bias) op.bias = bias.tensor;
          on_cpu(op, expected);
          op.d = got.tensor;
          op.pre = pre_got.tensor;
          CAPTURE(to_text(shape_of(op, false)));
          const std::vector<std::byte> pre_before = pre_got.copy();
          GemmPlans plans(bench.lt, false);
          bench.prepare(plans, {shape_of(op, false)});
          plans.run(op, nullptr);
          CHECK(pre_got.copy() == pre_expected.copy());
          CHECK((pre_got.copy() == pre_before) == (epilogue == GemmEpilogue::dgelu));
          const float allowed = dtype == DType::f32 ? 2e-6F : 1.0F / 128;
          for (std::int64_t row = 0; row < m; ++row) {
            for (std::int64_t col = 0; col < got.tensor.ld; ++col) {
              const auto i = static_cast<std::size_t>(row * got.tensor.ld + col);
              const float wanted = number(expected.memory.bytes(), dtype, i);
              const float value = number(got.memory.bytes(), dtype, i);
              CHECK(std::abs(value - wanted) <= allowed * std::abs(wanted) + 1e-6F);
            }
          }
          ++count;
        }
      }
    }
  }
  CHECK(count == 24);
}

TEST_CASE("trials of a product with a GELU have an argument of their own") {
  Bench bench;
  bench.gpu.algorithms = {{.id = 1}, {.id = 2, .seconds = 0.5e-3}};
  for (const GemmEpilogue epilogue : {GemmEpilogue::gelu, GemmEpilogue::dgelu}) {
    GemmShape shape = linear();
    shape.epilogue = epilogue;
    shape.ld_pre = 16;
    FakeTrials trials(bench.gpu);
    GemmPlans plans(bench.lt, false);
    bench.gpu.launches.clear();
    bench.prepare(plans, {shape}, &trials);
    CHECK(plans.choices()[0].algorithm == 2);
    CHECK(trials.is_within);
    std::set<void*> arguments;
    for (const FakeLaunch& launch : bench.gpu.launches) arguments.insert(launch.aux);
    CHECK(arguments.size() == trials.results.size());
    CHECK_FALSE(arguments.contains(nullptr));
  }
}

TEST_CASE(
    "a batch multiplies matrix by matrix, of heads side by side and factors that are shared") {
  Bench bench;
  // Three query heads in packed rows, one of keys: the scores of the heads follow each other.
  const std::int64_t rows = 6;
  const std::int64_t heads = 3;
  const std::int64_t dim = 4;
  const Numbers q(DType::bf16, rows, heads * dim, 2, 1);
  const Numbers k(DType::bf16, rows, dim, 5, 2);
  const Numbers scores(DType::f32, heads * rows, rows, 0, 3);
  const GemmShape shape{.m = rows,
                        .n = rows,
                        .k = dim,
                        .lda = q.tensor.ld,
                        .ldb = k.tensor.ld,
                        .ldd = rows,
                        .out = DType::f32,
                        .batch = heads,
                        .stride_a = dim,
                        .stride_b = 0,
                        .stride_d = rows * rows};
  GemmPlans plans(bench.lt, false);
  // Their products with values go back into packed rows.
  const Numbers v(DType::f32, rows, dim, 1, 4);
  const Numbers out(DType::f32, rows, heads * dim, 3, 5);
  const GemmShape back{.m = rows,
                       .n = dim,
                       .k = rows,
                       .lda = rows,
                       .ldb = v.tensor.ld,
                       .ldd = out.tensor.ld,
                       .transpose_b = false,
                       .in = DType::f32,
                       .out = DType::f32,
                       .batch = heads,
                       .stride_a = rows * rows,
                       .stride_b = 0,
                       .stride_d = dim};
  bench.prepare(plans, {shape, back});
  plans.run(shape, {.a = q.tensor.data, .b = k.tensor.data, .d = scores.tensor.data}, nullptr);
  plans.run(back, {.a = scores.tensor.data, .b = v.tensor.data, .d = out.tensor.data}, nullptr);
  const auto at = [](const Numbers& x, std::int64_t row, std::int64_t col) {
    return number(x.memory.bytes(), x.tensor.dtype,
                  static_cast<std::size_t>(row * x.tensor.ld + col));
  };
  for (std::int64_t head = 0; head < heads; ++head) {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < rows; ++j) {
        float sum = 0;
        for (std::int64_t x = 0; x < dim; ++x) sum += at(q, i, head * dim + x) * at(k, j, x);
        CHECK(at(scores, head * rows + i, j) == sum);
      }
      for (std::int64_t x = 0; x < dim; ++x) {
        float sum = 0;
        for (std::int64_t j = 0; j < rows; ++j) sum += at(scores, head * rows + i, j) * at(v, j, x);
        CHECK(at(out, i, head * dim + x) == sum);
      }
    }
  }
}

TEST_CASE("a launch gets the workspace and the stream it was given, and its algorithm") {
  Bench bench;
  bench.gpu.computes = false;
  bench.gpu.algorithms = {{.id = 21, .workspace_bytes = kWorkspaceBytes}};
  GemmPlans plans(bench.lt, false);
  bench.prepare(plans, {linear()});
  int stream = 0;
  char operands[3] = {};
  plans.run(linear(), {.a = &operands[0], .b = &operands[1], .d = &operands[2]},
            reinterpret_cast<cudaStream_t>(&stream));
  REQUIRE(bench.gpu.launches.size() == 1);
  const FakeLaunch& launch = bench.gpu.launches[0];
  CHECK(launch.algorithm == 21);
  CHECK(launch.a == &operands[1]);
  CHECK(launch.b == &operands[0]);
  CHECK(launch.d == &operands[2]);
  CHECK(launch.workspace == bench.workspace.bytes().data());
  CHECK(launch.workspace_bytes == kWorkspaceBytes);
  CHECK(launch.stream == &stream);
}

TEST_CASE("faults name the shape and the cause") {
  Bench bench;
  GemmPlans plans(bench.lt, false);
  std::string text;
  CHECK(code_of([&] { plans.run(linear(), {}, nullptr); }, &text) == ExitCode::internal);
  CHECK(text == "gemm m24 n16 k8 nt bf16>bf16 a256: was not prepared");

  bench.prepare(plans, {linear()});
  bench.gpu.algorithms[0].launch = CUBLAS_STATUS_EXECUTION_FAILED;
  CHECK(code_of([&] { plans.run(linear(), {}, nullptr); }, &text) == ExitCode::failed);
  CHECK(text == std::string("gemm m24 n16 k8 nt bf16>bf16 a256: cublasLtMatmul: ") +
                    bench.lt.cublasLtGetStatusString(CUBLAS_STATUS_EXECUTION_FAILED));

  GemmShape other = linear();
  other.m = 32;
  const Memory elsewhere(kWorkspaceBytes);
  const std::vector<GemmShape> shapes{other};
  CHECK(code_of([&] {
          plans.prepare(shapes, elsewhere.bytes(), bench.options, nullptr, nullptr);
        }) == ExitCode::internal);
  bench.gpu.heuristic = CUBLAS_STATUS_NOT_SUPPORTED;
  CHECK(code_of([&] { bench.prepare(plans, {other}); }, &text) == ExitCode::unsupported);
  CHECK(text.starts_with("gemm m32 n16 k8 nt bf16>bf16 a256: cublasLtMatmulAlgoGetHeuristic: "));
  other.in = other.out = DType::f64;
  CHECK(code_of([&] { bench.prepare(plans, {other}); }) == ExitCode::unsupported);
}

TEST_CASE("a library that does not start says so") {
  Bench bench;
  std::string text;
  bench.gpu.create = CUBLAS_STATUS_NOT_INITIALIZED;
  CHECK(code_of([&] { const GemmPlans plans(bench.lt, false); }, &text) == ExitCode::wrong_device);
  CHECK(text.starts_with(bench.lt.path.string() + ": cuBLASLt does not start: "));
  bench.gpu.create = CUBLAS_STATUS_ALLOC_FAILED;
  CHECK(code_of([&] { const GemmPlans plans(bench.lt, false); }) == ExitCode::oom);
}

TEST_CASE("on a GPU its name is known, and where there is none that is said") {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) {
    const GpuNames names = current_gpu();
    CHECK(names.gpu.ends_with(" SMs"));
    CHECK(names.driver.find('.') != std::string::npos);
  } else {
    CHECK(code_of([] { current_gpu(); }) == ExitCode::wrong_device);
    CHECK(code_of([] { gpu_trials(nullptr, {}); }) == ExitCode::failed);
    CHECK(code_of([] { const GemmPlans plans(cublas_lt(), false); }) == ExitCode::wrong_device);
  }
}
