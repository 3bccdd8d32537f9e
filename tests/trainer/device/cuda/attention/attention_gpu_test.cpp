// SPDX-License-Identifier: Apache-2.0
// cuDNN's attention on a GPU against the CPU's in f64. It needs a GPU.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <vector>

#include "tests/trainer/device/cuda/attention/attention_device.h"
#include "trainer/device/cuda/attention/attention_plans.h"
#include "trainer/selftest/run_case.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

void must(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

class GpuMemory {
 public:
  std::byte* operator()(std::int64_t bytes) {
    void* p = nullptr;
    must(cudaMalloc(&p, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))));
    blocks_.emplace_back(static_cast<std::byte*>(p));
    return blocks_.back().get();
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { cudaFree(p); }
  };
  std::vector<std::unique_ptr<std::byte, Free>> blocks_;
};

class CudnnDevice final : public AttentionDevice {
 public:
  explicit CudnnDevice(bool deterministic)
      : plans_(std::make_unique<cuda::AttentionPlans>(compute_capability(), deterministic)) {}

  std::int64_t workspace_bytes(const Op& op) const override {
    return visit(op, [&](const auto& o) { return plans_->workspace_bytes(o); });
  }
  void prepare(std::span<const Op> all, std::span<std::byte> workspace) override {
    for (const Op& op : all) {
      visit(op, [&](const auto& o) {
        if (const auto why = plans_->refusal(o)) throw std::runtime_error(*why);
        plans_->prepare(o, workspace);
        return std::int64_t{0};
      });
    }
  }
  void copy(Stream, void* dst, const void* src, std::int64_t bytes) override {
    must(cudaDeviceSynchronize());
    must(cudaMemcpy(dst, src, static_cast<std::size_t>(bytes), cudaMemcpyDefault));
  }

  const cuda::AttentionPlans& plans() const { return *plans_; }

 private:
  static int compute_capability() {
    int major = 0;
    int minor = 0;
    must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    must(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    return 10 * major + minor;
  }
  template <class F>
  static std::int64_t visit(const Op& op, const F& f) {
    if (const auto* forward = std::get_if<AttentionForward>(&op)) return f(*forward);
    return f(std::get<AttentionBackward>(op));
  }
  void attend(const AttentionForward& op) override { plans_->run(op, nullptr); }
  void attend(const AttentionBackward& op) override { plans_->run(op, nullptr); }

  std::unique_ptr<cuda::AttentionPlans> plans_;
};

// Rows are aligned to 16 bytes, with gaps between them.
Case aligned(const AttentionShape& s) {
  Case c;
  c.name = "attention " + std::to_string(s.seq) + " heads " + std::to_string(s.q_heads) + "/" +
           std::to_string(s.kv_heads) + "x" + std::to_string(s.head_dim);
  c.build = [=](Arena& a) {
    const std::int64_t rows = s.batch * s.seq;
    const std::int64_t width = (s.q_heads + 2 * s.kv_heads) * s.head_dim;
    const Tensor qkv = a.in("qkv", rows, width, 1.5, 0, 8);
    const Tensor out = a.out("out", rows, s.q_heads * s.head_dim, 16);
    const Tensor lse = a.statistics("lse", s.batch * s.q_heads, s.seq);
    const Tensor dout = a.in("dout", rows, s.q_heads * s.head_dim);
    Tensor row_sum = a.scratch(s.batch * s.q_heads * s.seq);
    row_sum.rows = s.batch * s.q_heads;
    row_sum.cols = row_sum.ld = s.seq;
    return std::vector<Op>{
        AttentionForward{s, qkv, out, lse},
        AttentionBackward{s, qkv, out, lse, dout, a.out("dqkv", rows, width, 24), row_sum}};
  };
  return c;
}

bool has_gpu() {
  int gpus = 0;
  return cudaGetDeviceCount(&gpus) == cudaSuccess && gpus > 0;
}

}  // namespace

TEST_CASE("cuDNN's attention agrees with the CPU's and, where it is to, repeats its bits") {
  if (!has_gpu()) {
    MESSAGE("skipped: no GPU");
    return;
  }
  for (const std::int64_t head_dim : {64, 80, 128}) {
    for (const std::int64_t seq : {256, 200}) {
      for (const std::int64_t kv_heads : {4, 2}) {
        const Case c = aligned(
            {2, seq, 4, kv_heads, head_dim, 1 / std::sqrt(static_cast<float>(head_dim)), 0});
        CAPTURE(c.name);
        const Outcome reference = run_case(c, DType::f64);
        for (const bool deterministic : {false, true}) {
          CAPTURE(deterministic);
          std::vector<std::byte> bytes;
          for (int repeat = 0; repeat < 3; ++repeat) {
            CudnnDevice device(deterministic);
            GpuMemory memory;
            const Outcome outcome =
                run_case(c, DType::bf16, device, [&](std::int64_t size) { return memory(size); });
            CHECK(outcome.overrun.empty());
            for (const std::string& name : outcome.compared) {
              CAPTURE(name);
              CHECK(distance(outcome.values.at(name), reference.values.at(name)) <=
                    (name == "lse" ? 1e-5 : 8e-3));
            }
            if (repeat == 0) bytes = outcome.bytes;
            if (deterministic) CHECK(outcome.bytes == bytes);
            CHECK(device.plans().choices().size() == 2);
          }
        }
      }
    }
  }
}
