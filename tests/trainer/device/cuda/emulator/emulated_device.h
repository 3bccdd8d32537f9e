// SPDX-License-Identifier: Apache-2.0
// A device that emulates our own kernels (trainer/device/cuda/emulator/emulator.h) and leaves GEMMs
// to the CPU device: all of the CUDA device that runs without a GPU. Its attention is unfused
// (trainer/device/cuda/attention/attention_unfused.h).
#pragma once

#include <memory>

#include "trainer/device/device.h"

namespace tessera::trainer::test {

// How much of its workspace attention uses: all of it, or the least, which means many chunks.
enum class AttentionWorkspace : bool { all, least };

// Makes the device. It executes at issue, in host memory. multiprocessors: size of the grids of
// grid-stride loops. Only one device runs at a time.
std::unique_ptr<Device> emulated_device(int multiprocessors = 3,
                                        AttentionWorkspace attention = AttentionWorkspace::all);

}  // namespace tessera::trainer::test
