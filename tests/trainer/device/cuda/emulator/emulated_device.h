// A device whose own kernels run emulated (trainer/device/cuda/emulator/emulator.h), with matrix
// products by the CPU device: what of the CUDA device can be run without a GPU. Attention is that
// of matrix products (trainer/device/cuda/attention/attention_unfused.h).
#pragma once

#include <memory>

#include "trainer/device/device.h"

namespace tessera::trainer::test {

// What attention takes of its workspace: all, or no more than it cannot do without, so that it
// works in many chunks.
enum class AttentionWorkspace : bool { all, least };

// Executes at issue, in host memory. multiprocessors: what grids that stride over their work are
// sized by. One at a time runs.
std::unique_ptr<Device> emulated_device(int multiprocessors = 3,
                                        AttentionWorkspace attention = AttentionWorkspace::all);

}  // namespace tessera::trainer::test
