// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/libraries/presence.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "lib/base/cuda_architectures.h"
#include "lib/base/error.h"
#include "trainer/device/cuda/libraries/libraries.h"
#include "trainer/device/cuda/libraries/runtime.h"

namespace tessera::trainer {

namespace {

// Returns "13.0" for 13000.
std::string version_text(int version) {
  return version <= 0 ? "" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string run_time_version() {
  int version = 0;
  return cudaRuntimeGetVersion(&version) == cudaSuccess ? version_text(version) : "";
}

std::string driver_version() {
  int version = 0;  // stays 0 without a driver
  if (cudaDriverGetVersion(&version) != cudaSuccess || version <= 0) return "";
  return "CUDA " + version_text(version);
}

// Returns why no GPU can be used, from the status of the first call.
std::string why(cudaError_t status) {
  switch (status) {
    case cudaErrorInsufficientDriver: {
      const std::string driver = driver_version();
      return driver.empty() ? "there is no NVIDIA driver on this machine"
                            : fmt::format("the driver is for {}, the trainer needs CUDA {}", driver,
                                          run_time_version());
    }
    case cudaErrorNoDevice:
      return "the driver shows no GPU to this process (CUDA_VISIBLE_DEVICES hides them, or none is "
             "there)";
    case cudaErrorStubLibrary:
      return "libcuda.so.1 is the toolkit's stub, not a driver";
    default:
      return fmt::format("{} ({})", cudaGetErrorString(status), cudaGetErrorName(status));
  }
}

// Splits CMake's list of architectures, such as "80,90-real".
std::vector<std::string> built_architectures() {
  std::vector<std::string> all;
  std::string_view rest = TESSERA_CUDA_ARCHITECTURES;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    all.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return all;
}

}  // namespace

std::optional<std::string> cuda::no_code_reason(std::span<const std::string> architectures,
                                                int compute_capability) {
  if (has_code_for(architectures, compute_capability)) return std::nullopt;
  const std::string capability = compute_capability_text(compute_capability);
  const std::string text = fmt::format("its compute capability is {}, this trainer has code for {}",
                                       capability, architectures_text(architectures));
  constexpr int kOldest = 80;
  if (compute_capability < kOldest) return text + "; a GPU from Ampere (A100) on";
  return text + fmt::format("; a build with -DCMAKE_CUDA_ARCHITECTURES={}", compute_capability);
}

GpuPresence gpu_presence() {
  GpuPresence presence;
  presence.is_built = true;
  presence.cuda = run_time_version();
  presence.has_cudnn = TESSERA_HAS_CUDNN != 0;
  presence.architectures = built_architectures();
  int count = 0;  // a failing call leaves it unset
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    presence.why_none = why(status != cudaSuccess ? status : cudaErrorNoDevice);
    return presence;
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cudaDeviceProp properties{};
    cuda::check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
    presence.names.emplace_back(properties.name);
    presence.memory_bytes.push_back(static_cast<std::int64_t>(properties.totalGlobalMem));
  }
  return presence;
}

cudaDeviceProp cuda::select_gpu(int ordinal) {
  const GpuPresence presence = gpu_presence();
  if (presence.names.empty())
    throw Error(ExitCode::unsupported, "gpu", presence.why_none,
                "a machine with a GPU, or the CPU");
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= presence.names.size()) {
    throw Error(ExitCode::wrong_device, "gpu",
                fmt::format("GPU {} of {}", ordinal, presence.names.size()),
                "a smaller number, or another CUDA_VISIBLE_DEVICES");
  }
  const cudaError_t chosen = cudaSetDevice(ordinal);  // creates the context
  if (chosen == cudaErrorMemoryAllocation)
    throw Error(ExitCode::wrong_device, "gpu", "its memory is full, not even a context fits",
                "wait until the other processes have ended, or take another GPU");
  check(chosen, "cudaSetDevice");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  const int capability = 10 * properties.major + properties.minor;
  if (auto reason = no_code_reason(presence.architectures, capability))
    throw Error(ExitCode::wrong_device, properties.name, *reason);
  return properties;
}

GpuSoftware cuda::software() {
  GpuSoftware software;
  software.driver = driver_version();
  software.cuda = run_time_version();
  software.cublaslt = cublas_lt().version;
#if TESSERA_HAS_CUDNN
  try {
    software.cudnn = cudnn().version;
  } catch (const Error&) {
    // Attention runs without cuDNN then, and the log says so.
    software.cudnn.clear();
  }
#endif
  return software;
}

}  // namespace tessera::trainer
