// Runs the blocks of a kernel on the CPU, one after another, each thread of a block as a fiber, so
// that sync() and shuffles work as on a GPU. What a GPU may do in any order happens in an order
// that is chosen: forward, reversed or random; a result that depends on it lacks a sync().
//
// A kernel that a GPU would not survive ends the program with a line that says which kernel, block
// and thread, and where: a sync() or shuffle that not all come to, a 16-byte access to an address
// that is no multiple of 16, an address of shared memory where an instruction takes global ones or
// the other way round. Shared memory begins as NaN. Under the address sanitizer every byte
// out of bounds is caught, under the thread sanitizer (of the kernels alone) every pair of accesses
// to one address that no sync() orders. Copies to shared memory happen when they are waited for, as
// late as they may.
//
// Not emulated: speed, other types than kernels use, order of memory between blocks. x86-64 only.
// All of one launch runs on the calling thread; two threads may not launch at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "trainer/device/cuda/launch.h"

namespace tessera::trainer::cuda::emulator {

// Which of the threads that can go on does.
enum class Order : std::uint8_t { forward, reversed, random };

struct Options {
  Order order = Order::forward;
  std::uint64_t seed = 1;
};
// Of the launches that follow.
Options& options();

struct Place {
  const char* file;
  int line;
};

// The running thread.
struct Current {
  int thread = 0;
  std::int64_t block_x = 0;
  std::int64_t block_y = 0;
  std::int64_t blocks_x = 1;
  std::int64_t blocks_y = 1;
};
const Current& current();

// max_shared: bytes of a block, Launch's.
void run_grid(const char* kernel, Grid grid, int threads, int max_shared,
              const std::function<void()>& body);

void sync(Place place);
// The bits of the lane whose number differs from the caller's in `lane_bits`.
std::uint64_t shuffle_xor(std::uint64_t bits, int lane_bits, Place place);
// `bytes` of the block for the declaration `place`: the same for all of its threads.
void* shared_memory(const void* place, std::size_t bytes);
// The Grid's shared_bytes of the block.
void* dynamic_shared_memory();
// Copies of the running thread, which simt.h carries out.
struct Copy {
  void* to;
  const void* from;
};
void cp_async(void* to, const void* from, Place place);
void cp_async_commit();
// The next that is not of its last `groups` groups, which then counts as done; null: there is none.
const Copy* due_copy(int groups);
void check_aligned(const void* address, Place place);
// Of instructions that name the address space: the address of another one is none there.
void check_global(const void* address, Place place);

}  // namespace tessera::trainer::cuda::emulator
