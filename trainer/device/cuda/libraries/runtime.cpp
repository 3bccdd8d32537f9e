// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/libraries/runtime.h"

#include <fmt/format.h>

#include "lib/base/error.h"
#include "trainer/device/cuda/launch.h"

namespace tessera::trainer::cuda {

void check(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the error: the next launch would report it
  const std::string text =
      fmt::format("{} ({})", cudaGetErrorString(status), cudaGetErrorName(status));
  switch (status) {
    case cudaErrorMemoryAllocation:
      throw Error(ExitCode::oom, what, text,
                  "make microbatch_size smaller or set activation_checkpointing: full");
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorStubLibrary:
    case cudaErrorInvalidDevice:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorSystemDriverMismatch:
      throw Error(ExitCode::wrong_device, what, text, "gpu: cpu, or a machine with a GPU");
    case cudaErrorDevicesUnavailable:
      throw Error(ExitCode::wrong_device, what, text,
                  "another process has the GPU for itself: wait for it, or use another GPU");
    default:
      throw Error(ExitCode::failed, what, text);
  }
}

void check_launch(const char* kernel, int status) {
  check(static_cast<cudaError_t>(status), kernel);
}

DeviceMemory device_memory(std::int64_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, static_cast<std::size_t>(bytes)),
        fmt::format("{:.2f} GiB of GPU memory", static_cast<double>(bytes) / (1 << 30)));
  return DeviceMemory(static_cast<std::byte*>(memory));
}

PinnedMemory pinned_memory(std::int64_t bytes) {
  void* memory = nullptr;
  const cudaError_t status =
      cudaHostAlloc(&memory, static_cast<std::size_t>(bytes), cudaHostAllocPortable);
  const std::string what =
      fmt::format("{:.2f} GiB of pinned memory", static_cast<double>(bytes) / (1 << 30));
  if (status == cudaErrorMemoryAllocation)
    throw Error(ExitCode::host_oom, what, cudaGetErrorString(status));
  check(status, what);
  return PinnedMemory(static_cast<std::byte*>(memory));
}

OwnedStream make_stream(bool urgent) {
  int least = 0;
  int greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? greatest : least),
        "cudaStreamCreate");
  return OwnedStream(stream);
}

OwnedEvent make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "cudaEventCreate");
  return OwnedEvent(event);
}

}  // namespace tessera::trainer::cuda
