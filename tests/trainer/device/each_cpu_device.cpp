// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "tests/trainer/device/each_device.h"
#include "trainer/device/cpu/cpu_device.h"

namespace tessera::trainer::test {

void with_each_device(const std::function<void(TestedDevice&)>& f) {
  for (const cpu::Kernels* kernels : cpu::supported_kernels()) {
    const std::string isa = kernels->isa;
    CAPTURE(isa);
    TestedDevice tested{cpu::cpu_device(2, *kernels)};
    f(tested);
  }
}

}  // namespace tessera::trainer::test
