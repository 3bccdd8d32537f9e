// A device whose own kernels run emulated (trainer/device/cuda/emulator.h), with matrix products by
// the CPU device: what of the CUDA device can be run without a GPU.
#pragma once

#include <memory>

#include "trainer/device/device.h"

namespace tessera::trainer::test {

// Executes at issue, in host memory. multiprocessors: what grids that stride over their work are
// sized by. One at a time runs.
std::unique_ptr<Device> emulated_device(int multiprocessors = 3);

}  // namespace tessera::trainer::test
