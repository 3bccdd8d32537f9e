// SPDX-License-Identifier: Apache-2.0
// Runs the blocks of a kernel on the CPU, one after another, each thread of a block as a fiber, so
// that sync() and shuffles work as on a GPU. Threads that a GPU may run in any order run in a
// chosen one: forward, reversed or random. A result that depends on it lacks a sync().
//
// A kernel that a GPU would not survive ends the program with a line that names the kernel, the
// block, the thread and the place. Such faults are: a sync() or shuffle that not all threads reach,
// a misaligned 16-byte access, an address of shared memory where an instruction takes global ones
// or the other way round. Shared memory begins as NaN. The address sanitizer catches every byte out
// of bounds; the thread sanitizer (of the kernels alone) catches every pair of accesses to one
// address that no sync() orders. Asynchronous copies happen when they are waited for, as late as
// they may.
//
// Not emulated: speed, other types than kernels use, memory order between blocks. x86-64 only. A
// launch runs on the calling thread; two threads may not launch at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "trainer/device/cuda/launch.h"

namespace tessera::trainer::cuda::emulator {

// The order in which runnable threads go on.
enum class Order : std::uint8_t { forward, reversed, random };

struct Options {
  Order order = Order::forward;
  std::uint64_t seed = 1;
};
// Options of the launches that follow.
Options& options();

// A place in a kernel's source.
struct Place {
  const char* file;
  int line;
};

// The indices of the running thread.
struct Current {
  int thread = 0;
  std::int64_t block_x = 0;
  std::int64_t block_y = 0;
  std::int64_t blocks_x = 1;
  std::int64_t blocks_y = 1;
};
const Current& current();

// Runs `body` once for each thread. max_shared: bytes of shared memory that a block may have.
void run_grid(const char* kernel, Grid grid, int threads, int max_shared,
              const std::function<void()>& body);

void sync(Place place);
// Returns the bits of the lane whose number differs from the caller's in `lane_bits`.
std::uint64_t shuffle_xor(std::uint64_t bits, int lane_bits, Place place);
// Returns `bytes` of the block's shared memory for the declaration `place`: the same for all
// threads.
void* shared_memory(const void* place, std::size_t bytes);
// Returns the Grid's dynamic_shared_bytes of the block.
void* dynamic_shared_memory();
// An asynchronous copy of the running thread. simt.h carries it out.
struct Copy {
  void* to;
  const void* from;
};
void cp_async(void* to, const void* from, Place place);
void cp_async_commit();
// Takes the next copy that is not of the thread's last `groups` groups. Null: there is none.
const Copy* due_copy(int groups);
void check_aligned(const void* address, Place place);
// Checks the address of an instruction that works on global memory alone.
void check_global(const void* address, Place place);

}  // namespace tessera::trainer::cuda::emulator
