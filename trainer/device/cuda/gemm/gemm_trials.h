// SPDX-License-Identifier: Apache-2.0
// The GPU as autotuning of GEMMs sees it: memory for operands, random numbers in it, and a clock.
// It is an interface, so that a test has another one.
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
  // Acquires device memory until release: `bytes`, or less if less is free, or none.
  virtual std::span<std::byte> acquire(std::int64_t bytes) = 0;
  virtual void release() noexcept = 0;
  virtual void fill_with_random(std::span<std::byte> memory, DType dtype) = 0;
  // Returns the device's seconds from the first to the last of the launches. Waits for their end.
  virtual double seconds(const std::function<void()>& launches) = 0;
};

// Trials on the current GPU and stream; launches must go to that stream. They take `spare`, device
// memory aligned to kGemmAlignment, if it is enough. Otherwise they take the larger of it and at
// most half of the free memory, because kernels that are loaded meanwhile need some too.
// Error(failed) if the GPU reports a fault.
std::unique_ptr<GemmTrials> gpu_trials(cudaStream_t stream, std::span<std::byte> spare);

// The current GPU, "NVIDIA H200, 132 SMs" (equal bits need the same number of SMs), and the newest
// CUDA that the driver runs, "13.0". Error(wrong_device) if there is none.
struct GpuNames {
  std::string gpu;
  std::string driver;
};
GpuNames current_gpu();

}  // namespace tessera::trainer::cuda
