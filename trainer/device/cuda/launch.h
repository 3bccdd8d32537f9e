// Where a kernel is launched, for nvcc, the C++ compiler and the emulator alike: no CUDA header.
#pragma once

namespace tessera::trainer::cuda {

struct Launch {
  void* stream = nullptr;   // a cudaStream_t
  int multiprocessors = 1;  // of the GPU: grids that stride over their work are sized by it
  bool load_only = false;   // have the kernel ready for its first launch, and launch nothing
  // That a block may have, declared by the kernel and asked for by the launch together: 48 KiB
  // everywhere, more where the GPU says so.
  int max_shared_bytes = 48 << 10;
};

// Blocks in x (at most 2^31 - 1) and y (at most 65535), and the bytes that dynamic_shared() has in
// each.
struct Grid {
  unsigned x = 1;
  unsigned y = 1;
  unsigned dynamic_shared_bytes = 0;
};

// Error(failed) naming the kernel and the fault, if `status`, a cudaError_t, is one.
void check_launch(const char* kernel, int status);

}  // namespace tessera::trainer::cuda
