// SPDX-License-Identifier: Apache-2.0
// The devices that a test runs on. A test program links one definition: the CPU device with each
// table of kernels, or our own GPU kernels, emulated.
#pragma once

#include <functional>
#include <memory>

#include "trainer/device/device.h"

namespace tessera::trainer::test {

struct TestedDevice {
  std::unique_ptr<Device> device;
  bool has_f64 = true;  // instances in f64
  // Attention rounds probabilities and dS to bf16 for its products (docs/precision.md).
  bool rounds_probabilities = false;
};

void with_each_device(const std::function<void(TestedDevice&)>& f);

}  // namespace tessera::trainer::test
