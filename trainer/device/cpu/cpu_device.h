// The CPU device with a chosen table of kernels: for tests of those that the CPU's best hides.
#pragma once

#include "trainer/device/cpu/operations.h"
#include "trainer/device/device.h"

namespace tessera::trainer::cpu {

// kernels: one of supported_kernels().
std::unique_ptr<Device> cpu_device(int threads, const Kernels& kernels);

}  // namespace tessera::trainer::cpu
