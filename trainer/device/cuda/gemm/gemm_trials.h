// What timing matrix products needs of a GPU: memory for operands, random numbers in it, and a
// clock. Behind an interface, so that a test has another.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "lib/schedule/dtype.h"

namespace tessera::trainer::cuda {

class GemmTrials {
 public:
  virtual ~GemmTrials() = default;
  virtual std::int64_t l2_bytes() const = 0;
  // Device memory until release: `bytes`, or less if there is less, or none.
  virtual std::span<std::byte> acquire(std::int64_t bytes) = 0;
  virtual void release() noexcept = 0;
  virtual void fill_with_random(std::span<std::byte> memory, DType dtype) = 0;
  // Of the device, from the first to the last of the launches. Waits for their end.
  virtual double seconds(const std::function<void()>& launches) = 0;
};

// On the current GPU and that stream, on which the launches must be. Takes `spare`, device memory
// aligned to kGemmAlignment, if that is enough; else what is more, it or at most half of what is
// free, as kernels that are loaded meanwhile need some too. Error(failed) if the GPU reports a
// fault.
std::unique_ptr<GemmTrials> gpu_trials(cudaStream_t stream, std::span<std::byte> spare);

// Of the current GPU: "NVIDIA H200, 132 SMs", the same bits only for the same number of SMs; and
// the newest CUDA that the driver runs, "13.0". Error(wrong_device) if there is none.
struct GpuNames {
  std::string gpu;
  std::string driver;
};
GpuNames current_gpu();

}  // namespace tessera::trainer::cuda
