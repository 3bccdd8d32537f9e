// What the emulator's sources share: the state of the launch that runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "trainer/device/cuda/emulator.h"

namespace tessera::trainer::cuda::emulator {

constexpr int kWarp = 32;
constexpr int kMostThreads = 1024;
constexpr std::size_t kMostShared = 228 << 10;  // of any GPU
constexpr int kMostCopies = 64;                 // of a thread on their way
#if defined(__SANITIZE_ADDRESS__) || defined(TESSERA_EMULATOR_TSAN)
constexpr std::size_t kStackBytes = 256 << 10;
#else
constexpr std::size_t kStackBytes = 64 << 10;
#endif

using HeapBytes = std::unique_ptr<std::byte, void (*)(void*)>;

enum class State : std::uint8_t { ready, at_sync, at_exchange, done };

struct Fiber {
  Current index;
  State state = State::ready;
  Place place{"", 0};
  std::uint64_t bits = 0;  // of an exchange
  int lane_bits = 0;
  // Copies on their way, a ring, and the group of each: that of the next, and how many have ended.
  Copy copies[kMostCopies] = {};
  int copy_groups[kMostCopies] = {};
  int first_copy = 0;
  int copy_count = 0;
  int ended_groups = 0;
  void* stack_pointer = nullptr;
  std::byte* stack = nullptr;
  std::size_t stack_bytes = kStackBytes;
  // Which of two objects of the thread sanitizer its next sync() uses: a fast thread's next arrival
  // must not reach a slow one's last departure.
  bool turn = false;
  void* fake_stack = nullptr;
  void* tsan = nullptr;
};

struct Shared {
  const void* place;
  std::size_t bytes;
  HeapBytes memory;
};

// A ring with room for every thread of a block: a container that grew would be moved by a thread,
// which the thread sanitizer would take for an access.
struct Queue {
  int fibers[kMostThreads] = {};
  int first = 0;
  int count = 0;
  int& at(int i) { return fibers[(first + i) % kMostThreads]; }
};

// One launch at a time.
struct Machine {
  const char* kernel = "";
  const std::function<void()>* body = nullptr;
  std::vector<Fiber> fibers;  // of a block
  int threads = 0;
  std::size_t most_shared = 0;
  std::size_t launch_shared = 0;
  int live = 0;
  int at_sync = 0;
  Place sync_place{"", 0};       // of the first thread there
  std::vector<int> at_exchange;  // lanes of each warp that have come
  Queue ready;                   // fibers that can go on, in the order they became so
  std::uint64_t random = 0;
  std::vector<Shared> shared;
  Fiber home;
  Fiber* running = &home;
  // Of all blocks, where a thread's call of the heap would be an access of its own to the
  // sanitizer.
  HeapBytes tsan_shared{nullptr, std::free};
  char tsan_sync[2] = {};
  char tsan_begin = 0;
  char tsan_end = 0;
};

Machine& machine();

// Ends the program with a line that says which kernel, block and thread, and where.
[[noreturn]] void fail(std::string_view what, const Place* place = nullptr);

// Of exactly so many bytes, so that the address sanitizer sees the first beyond.
HeapBytes from_heap(std::size_t bytes);

}  // namespace tessera::trainer::cuda::emulator
