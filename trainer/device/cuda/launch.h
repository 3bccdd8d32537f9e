// SPDX-License-Identifier: Apache-2.0
// How a kernel is launched, for nvcc, the C++ compiler and the emulator alike. Includes no CUDA
// header.
#pragma once

namespace tessera::trainer::cuda {

struct Launch {
  void* stream = nullptr;   // a cudaStream_t
  int multiprocessors = 1;  // of the GPU; sizes grid-stride loops
  bool load_only = false;   // load the kernel's module, launch nothing
  // Bytes of shared memory that a block may have, static and dynamic together: 48 KiB everywhere,
  // more where the GPU offers it (sharedMemPerBlockOptin).
  int max_shared_bytes = 48 << 10;
};

// Blocks in x (at most 2^31 - 1) and y (at most 65535), and the bytes of dynamic shared memory of
// each block.
struct Grid {
  unsigned x = 1;
  unsigned y = 1;
  unsigned dynamic_shared_bytes = 0;
};

// Throws Error(failed) naming the kernel and the fault if `status`, a cudaError_t, is a fault.
void check_launch(const char* kernel, int status);

}  // namespace tessera::trainer::cuda
