// SPDX-License-Identifier: Apache-2.0
// The CUDA run time with errors and owners: what a call's status means, and memory, streams and
// events that are freed with their scope.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

namespace tessera::trainer::cuda {

// Throws Error of `what` unless cudaSuccess: oom for memory that cannot be had, wrong_device if
// there is no driver or no GPU, failed for everything else.
void check(cudaError_t status, std::string_view what);

struct FreeDeviceMemory {
  void operator()(std::byte* p) const { cudaFree(p); }
};
using DeviceMemory = std::unique_ptr<std::byte, FreeDeviceMemory>;
// Allocates device memory. Error(oom) if there is not enough.
DeviceMemory device_memory(std::int64_t bytes);

struct FreePinnedMemory {
  void operator()(std::byte* p) const { cudaFreeHost(p); }
};
using PinnedMemory = std::unique_ptr<std::byte, FreePinnedMemory>;
// Allocates pinned host memory. Error(host_oom) if there is not enough.
PinnedMemory pinned_memory(std::int64_t bytes);

struct DestroyStream {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
using OwnedStream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream>;
// Makes a stream that does not wait for the default stream. urgent: with the higher priority.
OwnedStream make_stream(bool urgent);

struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using OwnedEvent = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;
OwnedEvent make_event();

// Returns the device's seconds for what `issue` puts on the stream. Waits for it.
template <class Issue>
double timed(cudaStream_t stream, cudaEvent_t begin, cudaEvent_t end, Issue issue) {
  check(cudaEventRecord(begin, stream), "cudaEventRecord");
  issue();
  check(cudaEventRecord(end, stream), "cudaEventRecord");
  check(cudaEventSynchronize(end), "cudaEventSynchronize");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace tessera::trainer::cuda
