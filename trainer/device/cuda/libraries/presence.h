// SPDX-License-Identifier: Apache-2.0
// The GPUs and the CUDA software of the machine.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>
#include <span>
#include <string>

#include "trainer/device/gpu.h"

namespace tessera::trainer::cuda {

// Makes GPU `ordinal` the thread's current one and returns its properties. Error(unsupported) if
// there is no driver or no GPU, Error(wrong_device) if there is no such GPU or the trainer has no
// code for it.
cudaDeviceProp select_gpu(int ordinal);

// Returns why a trainer built for these architectures cannot use a GPU of that compute capability
// (90 for 9.0), and what would help. Nothing: it can.
std::optional<std::string> no_code_reason(std::span<const std::string> architectures,
                                          int compute_capability);

// Returns the versions of what is installed and opened; the driver's as the run time knows it.
GpuSoftware software();

}  // namespace tessera::trainer::cuda
