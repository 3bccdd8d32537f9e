// SPDX-License-Identifier: Apache-2.0
// The CPU device with a chosen table of kernels. Tests use it for tables that are not this CPU's
// best.
#pragma once

#include "trainer/device/cpu/operations.h"
#include "trainer/device/device.h"

namespace tessera::trainer::cpu {

// kernels: one of supported_kernels().
std::unique_ptr<Device> cpu_device(int threads, const Kernels& kernels);

}  // namespace tessera::trainer::cpu
