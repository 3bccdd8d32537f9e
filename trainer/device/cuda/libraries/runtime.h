// The CUDA run time with errors and owners: what a call's status means, and memory, streams and
// events that end with their scope.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

namespace tessera::trainer::cuda {

// Nothing for cudaSuccess. Else Error of `what`: oom for memory that cannot be had, wrong_device
// where there is no driver or no GPU, failed for all other.
void check(cudaError_t status, std::string_view what);

struct FreeDeviceMemory {
  void operator()(std::byte* p) const { cudaFree(p); }
};
using DeviceMemory = std::unique_ptr<std::byte, FreeDeviceMemory>;
// Error(oom) if it cannot be had.
DeviceMemory device_memory(std::int64_t bytes);

struct FreePinnedMemory {
  void operator()(std::byte* p) const { cudaFreeHost(p); }
};
using PinnedMemory = std::unique_ptr<std::byte, FreePinnedMemory>;
// Error(host_oom) if it cannot be had.
PinnedMemory pinned_memory(std::int64_t bytes);

struct DestroyStream {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
using OwnedStream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream>;
// That does not wait for the default stream. urgent: its blocks go before others' where both wait.
OwnedStream make_stream(bool urgent);

struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using OwnedEvent = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;
OwnedEvent make_event();

// Seconds of what `issue` puts on the stream. Waits for it.
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
