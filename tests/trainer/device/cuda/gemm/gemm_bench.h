// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of GEMM plans: a fake GPU with trials on it, and a shape.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "tests/trainer/device/cuda/gemm/fake_cublaslt.h"
#include "trainer/device/cuda/gemm/gemm.h"

namespace tessera::trainer::test {

inline constexpr std::int64_t kWorkspaceBytes = 1 << 20;

// Host memory with the alignment of device memory.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : storage_(bytes + cuda::kGemmAlignment) {
    void* at = storage_.data();
    std::size_t room = storage_.size();
    std::align(cuda::kGemmAlignment, bytes, at, room);
    bytes_ = {static_cast<std::byte*>(at), bytes};
  }
  std::span<std::byte> bytes() const { return bytes_; }
  bool holds(const void* address) const {
    const auto* at = static_cast<const std::byte*>(address);
    return at >= bytes_.data() && at < bytes_.data() + bytes_.size();
  }

 private:
  std::vector<std::byte> storage_;
  std::span<std::byte> bytes_;
};

// Trials whose clock is the fake GPU's.
class FakeTrials : public cuda::GemmTrials {
 public:
  explicit FakeTrials(const FakeGpu& gpu, std::int64_t most_bytes = std::int64_t{1} << 24)
      : gpu_(gpu), most_(most_bytes) {}

  std::int64_t l2_bytes() const override { return 1 << 16; }
  std::span<std::byte> acquire(std::int64_t bytes) override {
    CHECK(memory == nullptr);
    asked = bytes;
    if (when_taken) when_taken();
    memory = std::make_unique<Memory>(static_cast<std::size_t>(std::min(bytes, most_)));
    return memory->bytes();
  }
  void release() noexcept override {
    memory.reset();
    ++given_back;
  }
  void fill_with_random(std::span<std::byte> bytes, DType dtype) override {
    CHECK(memory->holds(bytes.data()));
    CHECK(memory->holds(&bytes.back()));
    filled.push_back(dtype);
  }
  double seconds(const std::function<void()>& launches) override {
    const double before = gpu_.clock;
    const std::size_t first = gpu_.launches.size();
    launches();
    for (std::size_t i = first; i < gpu_.launches.size(); ++i) {
      const FakeLaunch& launch = gpu_.launches[i];
      is_within = is_within && memory->holds(launch.a) && memory->holds(launch.b) &&
                  memory->holds(launch.d) && (launch.aux == nullptr || memory->holds(launch.aux));
      results.insert(launch.d);
    }
    return gpu_.clock - before;
  }

  std::unique_ptr<Memory> memory;
  std::function<void()> when_taken;
  std::int64_t asked = 0;
  int given_back = 0;
  bool is_within = true;
  std::set<void*> results;
  std::vector<DType> filled;

 private:
  const FakeGpu& gpu_;
  std::int64_t most_;
};

struct Bench {
  FakeGpu& gpu = new_fake_gpu();
  cuda::CublasLt lt = fake_cublas_lt();
  Memory workspace{kWorkspaceBytes};
  cuda::GemmOptions options{.gpu = {.gpu = "Made-up GPU, 4 SMs", .driver = "13.0"}};

  void prepare(cuda::GemmPlans& plans, std::vector<cuda::GemmShape> shapes,
               cuda::GemmTrials* trials = nullptr) {
    plans.prepare(shapes, workspace.bytes(), options, trials, nullptr);
  }
};

inline cuda::GemmShape linear() {
  return {.m = 24, .n = 16, .k = 8, .lda = 8, .ldb = 8, .ldd = 16};
}

inline ExitCode code_of(const std::function<void()>& action, std::string* text = nullptr) {
  try {
    action();
  } catch (const Error& error) {
    if (text != nullptr) *text = error.what();
    return error.code();
  }
  return ExitCode::ok;
}

}  // namespace tessera::trainer::test
