// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/gemm/gemm_trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "trainer/device/cuda/gemm/gemm_operands.h"

namespace tessera::trainer::cuda {

namespace {

void require(cudaError_t status, const char* what, ExitCode code = ExitCode::failed) {
  if (status != cudaSuccess)
    throw Error(code, "GEMM trials", fmt::format("{}: {}", what, cudaGetErrorString(status)));
}

class Event {
 public:
  Event() { require(cudaEventCreate(&event_), "cudaEventCreate"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { cudaEventDestroy(event_); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class GpuTrials : public GemmTrials {
 public:
  GpuTrials(cudaStream_t stream, std::span<std::byte> spare) : stream_(stream), spare_(spare) {
    int device = 0;
    require(cudaGetDevice(&device), "cudaGetDevice");
    int bytes = 0;
    require(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device),
            "cudaDeviceGetAttribute");
    l2_bytes_ = bytes;
  }
  GpuTrials(const GpuTrials&) = delete;
  GpuTrials& operator=(const GpuTrials&) = delete;
  ~GpuTrials() override { cudaFree(memory_); }

  std::int64_t l2_bytes() const override { return l2_bytes_; }

  std::span<std::byte> acquire(std::int64_t bytes) override {
    release();
    const auto lent = spare_.first(std::min(static_cast<std::size_t>(bytes), spare_.size()) /
                                   kGemmAlignment * kGemmAlignment);
    if (lent.size() == static_cast<std::size_t>(bytes)) return lent;
    std::size_t free = 0;
    std::size_t total = 0;
    require(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    const std::size_t size =
        std::min(static_cast<std::size_t>(bytes), free / 2) / kGemmAlignment * kGemmAlignment;
    if (size <= lent.size()) return lent;
    const cudaError_t status = cudaMalloc(&memory_, size);
    if (status == cudaErrorMemoryAllocation) {
      memory_ = nullptr;
      cudaGetLastError();  // clears the error, so that nobody else finds it
      return lent;
    }
    require(status, "cudaMalloc");
    return {static_cast<std::byte*>(memory_), size};
  }

  // cudaFree waits for the kernels that use the memory. If the GPU fails here, it fails at the next
  // call too.
  void release() noexcept override { cudaFree(std::exchange(memory_, nullptr)); }

  void fill_with_random(std::span<std::byte> memory, DType dtype) override {
    if (numbers_.empty() || dtype != dtype_) {
      numbers_ = gemm_random_numbers(dtype);
      dtype_ = dtype;
    }
    std::size_t filled = std::min(numbers_.size(), memory.size());
    require(
        cudaMemcpyAsync(memory.data(), numbers_.data(), filled, cudaMemcpyHostToDevice, stream_),
        "cudaMemcpyAsync");
    // Doubles the filled part by copying it behind itself.
    while (filled < memory.size()) {
      const std::size_t part = std::min(filled, memory.size() - filled);
      require(cudaMemcpyAsync(memory.data() + filled, memory.data(), part, cudaMemcpyDeviceToDevice,
                              stream_),
              "cudaMemcpyAsync");
      filled += part;
    }
    require(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

  double seconds(const std::function<void()>& launches) override {
    require(cudaEventRecord(begin_.get(), stream_), "cudaEventRecord");
    launches();
    require(cudaEventRecord(end_.get(), stream_), "cudaEventRecord");
    require(cudaEventSynchronize(end_.get()), "cudaEventSynchronize");
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "cudaEventElapsedTime");
    // Clears the error that a refused launch may have left for the next one to report.
    cudaGetLastError();
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  cudaStream_t stream_;
  std::span<std::byte> spare_;
  std::int64_t l2_bytes_ = 0;
  void* memory_ = nullptr;
  std::vector<std::byte> numbers_;
  DType dtype_ = DType::bf16;
  Event begin_, end_;
};

}  // namespace

std::unique_ptr<GemmTrials> gpu_trials(cudaStream_t stream, std::span<std::byte> spare) {
  return std::make_unique<GpuTrials>(stream, spare);
}

GpuNames current_gpu() {
  int device = 0;
  require(cudaGetDevice(&device), "cudaGetDevice", ExitCode::wrong_device);
  cudaDeviceProp properties{};
  require(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties",
          ExitCode::wrong_device);
  int driver = 0;
  require(cudaDriverGetVersion(&driver), "cudaDriverGetVersion", ExitCode::wrong_device);
  return {.gpu = fmt::format("{}, {} SMs", properties.name, properties.multiProcessorCount),
          .driver = fmt::format("{}.{}", driver / 1000, driver % 1000 / 10)};
}

}  // namespace tessera::trainer::cuda
