// Which GPUs there are, and with which software.
#pragma once

#include <cuda_runtime_api.h>

#include "trainer/device/gpu.h"

namespace tessera::trainer::cuda {

// Makes GPU `ordinal` the thread's and tells what it is. Error(wrong_device) where there is no
// driver, no such GPU, or one that the trainer has no code for.
cudaDeviceProp select_gpu(int ordinal);

// Of the machine and of what was opened; the driver as the run time knows it.
GpuSoftware software();

}  // namespace tessera::trainer::cuda
