// SPDX-License-Identifier: Apache-2.0
// The life of a CPU device: memory, preparation, events; and a sealed device allocates nothing.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>
#include <thread>
#include <vector>

#include "lib/base/error.h"
#include "trainer/selftest/run_case.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

std::atomic<std::int64_t> allocations{0};

template <class F>
ExitCode code_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.code();
  }
  return ExitCode::ok;
}

}  // namespace

// The linker sends every malloc of the program here, OpenBLAS's and OpenMP's too (--wrap=malloc).
// operator new takes memory by malloc inside the C++ library, so it is counted separately.
extern "C" {
void* __real_malloc(std::size_t bytes);
void* __wrap_malloc(std::size_t bytes) {
  ++allocations;
  return __real_malloc(bytes);
}
}
void* operator new(std::size_t bytes) {
  if (void* p = malloc(bytes)) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return malloc(bytes);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}

TEST_CASE("OpenBLAS's kernels are those of this CPU, not of the oldest") {
  CHECK(better_blas_core("Prescott", "avx512") == "SkylakeX");
  CHECK(better_blas_core("Prescott", "avx2") == "Haswell");
  CHECK(better_blas_core("Sandybridge", "avx2") == "Haswell");
  CHECK(better_blas_core("Prescott", "x86-64-v2") == "");
  for (const char* core : {"SkylakeX", "Haswell", "Zen", "Cooperlake", "SapphireRapids"})
    CHECK(better_blas_core(core, "avx512") == "");
}

TEST_CASE("a sealed device does not touch the heap") {
  {  // The counter counts.
    const std::int64_t before = allocations;
    const std::vector<int> some(10);
    CHECK(allocations == before + 1);
  }
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto device = cpu_device(2);
      HostMemory memory;
      const Overrides none;
      CheckArena arena(*device, dtype, [&](std::int64_t bytes) { return memory(bytes); }, none);
      const std::vector<Op> ops = c.build(arena);
      std::int64_t workspace = 0;
      for (const Op& op : ops) workspace = std::max(workspace, device->workspace_bytes(op));
      device->prepare(ops, {memory(workspace), static_cast<std::size_t>(workspace)});
      device->seal();
      for (const Op& op : ops) {
        const bool gemm = std::holds_alternative<Gemm>(op);
        device->run(Stream::compute, op, {});  // threads start at their first use
        const std::int64_t before = allocations;
        device->record(Stream::compute, 1);
        device->wait(Stream::gather, 1);
        device->run(Stream::compute, op, {});
        // OpenBLAS allocates one small job list for each GEMM that it splits.
        CHECK(allocations - before <= (gemm ? 2 : 0));
      }
    }
  }
}

TEST_CASE("what was not prepared does not run") {
  const auto device = cpu_device(1);
  std::vector<float> x(64);
  std::vector<float> y(64);
  const Tensor a{x.data(), DType::f32, 4, 16, 16};
  const Tensor b{y.data(), DType::f32, 4, 16, 16};
  device->prepare(std::vector<Op>{Cast{a, b}}, {});
  device->seal();
  device->run(Stream::compute, Cast{a, b}, {});
  CHECK(code_of([&] { device->run(Stream::compute, Cast{a, b, true}, {}); }) == ExitCode::internal);
  CHECK(code_of([&] { device->run(Stream::compute, Cast{b, a}, {}); }) == ExitCode::internal);
  CHECK(code_of([&] { device->prepare({}, {}); }) == ExitCode::internal);
  CHECK(code_of([&] { device->allocate(Pool::device, 1); }) == ExitCode::internal);
}

TEST_CASE("operations whose parts do not fit are refused by name") {
  const auto device = cpu_device(1);
  alignas(64) static std::byte memory[1 << 16];
  const auto tensor = [](std::int64_t rows, std::int64_t cols, DType dtype = DType::f32) {
    return Tensor{memory, dtype, rows, cols, cols};
  };
  const auto refused = [&](const Op& op) {
    return code_of([&] { device->prepare(std::vector<Op>{op}, {}); });
  };
  using enum DType;
  CHECK(refused(Gemm{tensor(4, 8), tensor(3, 8), tensor(4, 3)}) == ExitCode::ok);
  CHECK(refused(Gemm{tensor(4, 8), tensor(3, 7), tensor(4, 3)}) == ExitCode::internal);
  CHECK(refused(Gemm{tensor(4, 8), tensor(3, 8), tensor(3, 4)}) == ExitCode::internal);
  CHECK(refused(Gemm{tensor(4, 8), tensor(3, 8, bf16), tensor(4, 3)}) == ExitCode::internal);
  CHECK(refused(Gemm{tensor(4, 8), tensor(3, 8), tensor(4, 3, bf16)}) == ExitCode::internal);
  CHECK(refused(Gemm{tensor(4, 8), tensor(3, 8), {}}) == ExitCode::internal);
  Gemm with_bias{tensor(4, 8), tensor(3, 8), tensor(4, 3), false, true, true};
  with_bias.bias = tensor(1, 3);
  CHECK(refused(with_bias) == ExitCode::internal);
  Gemm narrow{tensor(4, 8), tensor(3, 8), tensor(4, 3)};
  narrow.a.ld = 7;
  CHECK(refused(narrow) == ExitCode::internal);
  Gemm fused{tensor(4, 8), tensor(8, 8), tensor(4, 8)};
  fused.pre = tensor(4, 8);
  CHECK(refused(fused) == ExitCode::internal);  // pre without an epilogue
  for (const GemmEpilogue epilogue : {GemmEpilogue::gelu, GemmEpilogue::dgelu}) {
    fused.epilogue = epilogue;
    CHECK(refused(fused) == ExitCode::ok);
    const auto changed = [&](auto change) {
      Gemm other = fused;
      change(other);
      return refused(other);
    };
    CHECK(changed([](Gemm& o) { o.pre = {}; }) == ExitCode::internal);
    CHECK(changed([](Gemm& o) { o.pre.dtype = bf16; }) == ExitCode::internal);
    CHECK(changed([](Gemm& o) { o.pre.cols = 7; }) == ExitCode::internal);
    CHECK(changed([](Gemm& o) { o.pre.ld = 12; }) == ExitCode::unsupported);
    CHECK(changed([](Gemm& o) { o.pre.data = memory + 8; }) == ExitCode::unsupported);
    CHECK(changed([](Gemm& o) { o.accumulate = true; }) == ExitCode::internal);
    CHECK(changed([](Gemm& o) { o.a.dtype = o.b.dtype = o.pre.dtype = bf16; }) ==
          ExitCode::internal);
    CHECK(changed([&](Gemm& o) { o.bias = tensor(1, 8); }) ==
          (epilogue == GemmEpilogue::gelu ? ExitCode::ok : ExitCode::internal));
    Gemm one_row{tensor(1, 8), tensor(8, 8), tensor(1, 8)};
    one_row.epilogue = epilogue;
    one_row.pre = tensor(1, 8);
    one_row.pre.ld = 0;
    CHECK(refused(one_row) == ExitCode::internal);
  }
  // bf16 needs a workspace and got none.
  CHECK(refused(Gemm{tensor(4, 8, bf16), tensor(3, 8, bf16), tensor(4, 3, bf16)}) ==
        ExitCode::unsupported);
  CHECK(refused(BiasGrad{tensor(64, 8), tensor(1, 8), tensor(1, 32)}) == ExitCode::ok);
  CHECK(refused(BiasGrad{tensor(64, 8), tensor(1, 8), tensor(1, 31)}) == ExitCode::internal);
  CHECK(refused(AttentionForward{{1, 8, 3, 2, 4, 1}, tensor(8, 28), tensor(8, 12), tensor(3, 8)}) ==
        ExitCode::internal);
  CHECK(refused(NormForward{model::Norm::layernorm,
                            1e-5F,
                            tensor(4, 8),
                            {},
                            {},
                            tensor(4, 8),
                            tensor(1, 8),
                            {},
                            {},
                            tensor(1, 4)}) == ExitCode::internal);
  CHECK(refused(ActForward{model::Activation::swiglu, tensor(4, 7), tensor(4, 3)}) ==
        ExitCode::internal);
  CHECK(refused(Embed{tensor(1, 4), tensor(9, 8), {}, tensor(4, 8), 4}) == ExitCode::internal);
  CHECK(refused(CrossEntropy{tensor(4, 8), tensor(1, 4, i32), tensor(1, 4), 9, nullptr}) ==
        ExitCode::internal);
  CHECK(refused(Cast{tensor(4, 8), tensor(4, 8, i32)}) == ExitCode::internal);
  CHECK(refused(AdamW{tensor(1, 8), tensor(1, 8), tensor(1, 8), tensor(1, 7), {}}) ==
        ExitCode::internal);
}

// Allowed: one dtype throughout, or f32 beside branches in bf16; nothing else.
TEST_CASE("norms take the residual stream in the branches' dtype or in f32") {
  const auto device = cpu_device(1);
  alignas(64) static std::byte memory[1 << 16];
  using enum DType;
  const auto refused = [&](const Op& op) -> std::string {
    try {
      device->prepare(std::vector<Op>{op}, {});
    } catch (const Error& e) {
      CHECK(e.code() == ExitCode::internal);
      return e.what();
    }
    return "";
  };
  const auto tensor = [](std::int64_t rows, std::int64_t cols, DType dtype) {
    return Tensor{memory, dtype, rows, cols, cols};
  };
  const auto says = [](const std::string& text, const char* what) {
    return text.find(what) != std::string::npos;
  };
  const auto forward = [&](DType x, DType add, DType sum, DType y, DType gain, DType statistics) {
    return refused(NormForward{model::Norm::layernorm, 1e-5F, tensor(4, 8, x), tensor(4, 8, add),
                               tensor(4, 8, sum), tensor(4, 8, y), tensor(1, 8, gain),
                               tensor(1, 8, gain), tensor(1, 4, statistics),
                               tensor(1, 4, statistics)});
  };
  CHECK(forward(f32, f32, f32, f32, f32, f32).empty());
  CHECK(forward(bf16, bf16, bf16, bf16, bf16, f32).empty());
  CHECK(forward(f64, f64, f64, f64, f64, f64).empty());
  CHECK(forward(f32, bf16, f32, bf16, f32, f32).empty());
  CHECK(says(forward(f32, f32, f32, bf16, f32, f32), "add is f32, not bf16"));
  CHECK(says(forward(f32, bf16, f32, f32, f32, f32), "add is bf16, not f32"));
  CHECK(says(forward(f32, bf16, bf16, bf16, f32, f32), "sum is bf16, not f32"));
  CHECK(says(forward(f32, bf16, f32, bf16, bf16, f32), "gain is bf16, not f32"));
  CHECK(says(forward(f32, bf16, f32, bf16, f32, bf16), "mean is bf16, not f32"));
  CHECK(says(forward(bf16, bf16, bf16, f32, bf16, f32), "y is f32, not bf16"));
  CHECK(says(forward(f64, bf16, f64, bf16, f64, f64), "add is bf16, not f64"));
  CHECK(says(forward(f64, f64, f64, f32, f64, f64), "y is f32, not f64"));

  const auto backward = [&](DType dy, DType dsum_in, DType sum, DType gain, DType dsum,
                            DType sums) {
    return refused(NormBackward{model::Norm::rmsnorm, tensor(4, 8, dy), tensor(4, 8, dsum_in),
                                tensor(4, 8, sum), tensor(1, 8, gain), Tensor{}, tensor(1, 4, sums),
                                tensor(4, 8, dsum), tensor(1, 8, sums), tensor(1, 8, sums),
                                tensor(1, 16, sums)});
  };
  CHECK(backward(f32, f32, f32, f32, f32, f32).empty());
  CHECK(backward(bf16, bf16, bf16, bf16, bf16, f32).empty());
  CHECK(backward(f64, f64, f64, f64, f64, f64).empty());
  CHECK(backward(bf16, f32, f32, f32, f32, f32).empty());
  CHECK(says(backward(bf16, bf16, f32, f32, f32, f32), "dsum_in is bf16, not f32"));
  CHECK(says(backward(bf16, f32, f32, bf16, f32, f32), "gain is bf16, not f32"));
  CHECK(says(backward(bf16, f32, f32, f32, bf16, f32), "dsum is bf16, not f32"));
  CHECK(says(backward(f32, bf16, bf16, bf16, bf16, f32), "dy is f32, not bf16"));
  CHECK(says(backward(bf16, f64, f64, f64, f64, f64), "dy is bf16, not f64"));
  CHECK(says(backward(bf16, f32, f32, f32, f32, bf16), "rstd is bf16, not f32"));
}

TEST_CASE("tokens and targets outside of their tables are refused") {
  const auto device = cpu_device(2);
  std::vector<float> table(4 * 3);
  std::vector<float> y(2 * 3);
  std::vector<std::int32_t> tokens{1, 4};
  StepInputs in;
  const Tensor tokens_tensor{tokens.data(), DType::i32, 1, 2, 2};
  const Tensor y_tensor{y.data(), DType::f32, 2, 3, 3};
  const Embed embed{tokens_tensor, {table.data(), DType::f32, 4, 3, 3}, {}, y_tensor, 2};
  CHECK(code_of([&] { device->run(Stream::compute, embed, {}); }) == ExitCode::internal);
  std::vector<float> losses(2);
  const CrossEntropy loss{y_tensor, tokens_tensor, {losses.data(), DType::f32, 1, 2, 2}, 3, &in};
  CHECK(code_of([&] { device->run(Stream::compute, loss, {}); }) == ExitCode::internal);
}

TEST_CASE("events carry times and are known once recorded") {
  const auto device = cpu_device(1);
  CHECK(code_of([&] { device->wait(Stream::compute, 3); }) == ExitCode::internal);
  CHECK(code_of([&] { device->host_wait(3); }) == ExitCode::internal);
  device->record(Stream::compute, 3);
  device->wait(Stream::gather, 3);
  device->host_wait(3);
  CHECK(code_of([&] { device->seconds(3, 4); }) == ExitCode::internal);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  device->record(Stream::compute, 4);
  CHECK(device->seconds(3, 4) >= 0.02);
  CHECK(device->seconds(3, 4) < 10);
  CHECK(code_of([&] { device->record(Stream::compute, kEvents); }) == ExitCode::internal);
}

TEST_CASE("pools are aligned and writable, and too much is an error, not a kill") {
  const auto device = cpu_device(2);
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, std::int64_t{5'000'000}}) {
    std::byte* p = device->allocate(Pool::pinned, bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(p) % 256 == 0);
    for (std::int64_t i = 0; i < bytes; i += 1000) p[i] = std::byte{1};
  }
  CHECK(code_of([&] { device->allocate(Pool::device, std::int64_t{1} << 50); }) ==
        ExitCode::host_oom);
  CHECK(code_of([&] { device->allocate(Pool::device, -1); }) == ExitCode::internal);
  CHECK(device->info().kind == "cpu");
  CHECK(device->info().threads == 2);
  CHECK(device->info().memory_bytes > 0);
  CHECK(!device->info().name.empty());
  CHECK(device->info().blas.find("OpenBLAS") != std::string::npos);
  CHECK(code_of([] { cpu_device(0); }) == ExitCode::internal);
}

TEST_CASE("copies of many pieces arrive whole") {
  const auto device = cpu_device(2);
  std::vector<std::byte> from((3 << 20) + 17);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 >> 3);
  std::vector<std::byte> to(from.size() + 1, std::byte{9});
  device->copy(Stream::copy, to.data(), from.data(), static_cast<std::int64_t>(from.size()));
  CHECK(std::equal(from.begin(), from.end(), to.begin()));
  CHECK(to.back() == std::byte{9});
}

TEST_CASE("the GEMM peak is a plausible rate") {
  const double peak = measure_gemm_peak(1, 0.01).tflops;
  CHECK(peak > 0.001);
  CHECK(peak < 1);
}
