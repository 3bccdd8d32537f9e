// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "tests/trainer/device/cuda/emulator/emulated_device.h"
#include "tests/trainer/device/each_device.h"

namespace tessera::trainer::test {

void with_each_device(const std::function<void(TestedDevice&)>& f) {
  for (const AttentionWorkspace attention : {AttentionWorkspace::all, AttentionWorkspace::least}) {
    CAPTURE(static_cast<int>(attention));
    TestedDevice tested{emulated_device(3, attention), false, true};
    f(tested);
  }
}

}  // namespace tessera::trainer::test
