// Which GPUs there are, and with which software.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>
#include <span>
#include <string>

#include "trainer/device/gpu.h"

namespace tessera::trainer::cuda {

// Makes GPU `ordinal` the thread's and tells what it is. Error(unsupported) where there is no
// driver or no GPU, Error(wrong_device) where there is no such one, or one that the trainer has no
// code for.
cudaDeviceProp select_gpu(int ordinal);

// Why a GPU of that compute capability (90 for 9.0) cannot be used by a trainer that was built for
// these architectures, and what would do.
std::optional<std::string> no_code_reason(std::span<const std::string> architectures,
                                          int compute_capability);

// Of the machine and of what was opened; the driver as the run time knows it.
GpuSoftware software();

}  // namespace tessera::trainer::cuda
