// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/emulator/emulator.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
// This build compiles the kernels, but not this file, for the thread sanitizer.
#if defined(TESSERA_EMULATOR_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace tessera::trainer::cuda::emulator {

namespace {

// --- The state of the running launch.

constexpr std::uintptr_t kAccess = 16;
constexpr int kWarpSize = 32;
constexpr int kMaxThreads = 1024;
constexpr std::size_t kMaxShared = 228 << 10;  // 228 KiB: the most that any GPU has
constexpr int kMaxCopies = 64;                 // of a thread in flight
#if defined(__SANITIZE_ADDRESS__) || defined(TESSERA_EMULATOR_TSAN)
constexpr std::size_t kStackBytes = 256 << 10;
#else
constexpr std::size_t kStackBytes = 64 << 10;
#endif

using HeapBytes = std::unique_ptr<std::byte, void (*)(void*)>;

enum class State : std::uint8_t { ready, at_sync, at_shuffle, done };

struct Fiber {
  Current index;
  State state = State::ready;
  Place place{"", 0};
  std::uint64_t bits = 0;  // exchanged by a shuffle
  int lane_bits = 0;
  // Copies in flight and the group of each, a ring buffer; the groups committed so far.
  Copy copies[kMaxCopies] = {};
  int copy_groups[kMaxCopies] = {};
  int first_copy = 0;
  int copy_count = 0;
  int committed_groups = 0;
  void* stack_pointer = nullptr;
  std::byte* stack = nullptr;
  std::size_t stack_bytes = kStackBytes;
  // Which of two thread sanitizer objects the next sync() uses: a fast thread's next arrival must
  // not reach a slow thread's last departure.
  bool turn = false;
  void* fake_stack = nullptr;
  void* tsan = nullptr;
};

struct Shared {
  const void* place;
  std::size_t bytes;
  HeapBytes memory;
};

// A ring buffer with room for every thread of a block. A container that grew would be moved by a
// thread, which the thread sanitizer would take for an access.
struct Queue {
  int fibers[kMaxThreads] = {};
  int first = 0;
  int count = 0;
  int& at(int i) { return fibers[(first + i) % kMaxThreads]; }
};

// The machine runs one launch at a time.
struct Machine {
  const char* kernel = "";
  const std::function<void()>* body = nullptr;
  std::vector<Fiber> fibers;  // threads of a block
  int threads = 0;
  std::size_t max_shared = 0;
  std::size_t dynamic_shared = 0;
  int live = 0;
  int at_sync = 0;
  Place sync_place{"", 0};      // where the first thread arrived
  std::vector<int> at_shuffle;  // lanes of each warp that have arrived
  Queue ready;                  // fibers that can go on, oldest first
  std::uint64_t random = 0;
  std::vector<Shared> shared;
  Fiber home;
  Fiber* running = &home;
  // Shared memory of all blocks: if a thread called the heap, the sanitizer would see that as an
  // access.
  HeapBytes tsan_shared{nullptr, std::free};
  char tsan_sync[2] = {};
  char tsan_begin = 0;
  char tsan_end = 0;
};

Machine& machine() {
  static Machine only;
  return only;
}

// Ends the program with a line that says which kernel, block and thread failed, and where.
[[noreturn]] void fail(std::string_view what, const Place* place = nullptr) {
  const Machine& m = machine();
  const Current& at = m.running->index;
  std::string where;
  if (place != nullptr) where = fmt::format(" at {}:{}", place->file, place->line);
  std::fputs(fmt::format("emulator: {}: {}{} (block {},{} thread {})\n", m.kernel, what, where,
                         at.block_x, at.block_y, at.thread)
                 .c_str(),
             stderr);
  std::abort();
}

// Allocates exactly this many bytes, so that the address sanitizer sees the first byte beyond.
HeapBytes from_heap(std::size_t bytes) {
  void* memory = nullptr;
  if (::posix_memalign(&memory, kAccess, bytes) != 0) fail("no memory");
  return {static_cast<std::byte*>(memory), std::free};
}

// --- Threads of a block as fibers.

// Saves the callee-saved registers (System V ABI) on the stack and switches to another stack.
extern "C" void tessera_emulator_switch(void** save, void* load);
asm(R"(
.text
.globl tessera_emulator_switch
.type tessera_emulator_switch,@function
tessera_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tessera_emulator_switch,.-tessera_emulator_switch
)");

void switch_to(Fiber& next) {
  Machine& m = machine();
  Fiber& from = *m.running;
  if (&from == &next) return;
  m.running = &next;
#if defined(TESSERA_EMULATOR_TSAN)
  __tsan_switch_to_fiber(next.tsan, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(from.state == State::done ? nullptr : &from.fake_stack, next.stack,
                                 next.stack_bytes);
#endif
  tessera_emulator_switch(&from.stack_pointer, next.stack_pointer);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

[[noreturn]] void stuck() {
  const Machine& m = machine();
  const auto count = [&](State state) {
    return std::count_if(m.fibers.begin(), m.fibers.begin() + m.threads,
                         [state](const Fiber& f) { return f.state == state; });
  };
  const auto first = std::find_if(m.fibers.begin(), m.fibers.begin() + m.threads,
                                  [](const Fiber& f) { return f.state != State::done; });
  fail(fmt::format("{} threads wait at a sync(), {} at a shuffle, {} have ended: the first waits",
                   count(State::at_sync), count(State::at_shuffle), count(State::done)),
       &first->place);
}

// Returns the next fiber to run, or the launching thread when all have ended.
Fiber& next() {
  Machine& m = machine();
  Queue& ready = m.ready;
  if (ready.count == 0) {
    if (m.live > 0) stuck();
    return m.home;
  }
  --ready.count;
  int taken = ready.at(ready.count);
  switch (options().order) {
    case Order::forward:
      taken = ready.at(0);
      ready.first = (ready.first + 1) % kMaxThreads;
      break;
    case Order::random: {
      constexpr std::uint64_t kFactor = 6364136223846793005U;
      m.random = m.random * kFactor + 1442695040888963407U;
      const auto i = static_cast<int>((m.random >> 33) % (static_cast<unsigned>(ready.count) + 1));
      std::swap(taken, ready.at(i));
      break;
    }
    case Order::reversed:
      break;
  }
  return m.fibers[static_cast<std::size_t>(taken)];
}

void wake(Fiber& fiber) {
  Queue& ready = machine().ready;
  fiber.state = State::ready;
  ready.at(ready.count++) = fiber.index.thread;
}

// check_end is a function of its own: fiber_main() never returns, so the address sanitizer would go
// on watching its stack frame.
[[gnu::noinline]] void check_end() {
  const Fiber& me = *machine().running;
  if (me.copy_count > 0) fail("a thread ends before its copies", &me.place);
}

void fiber_main() {
  Machine& m = machine();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
#if defined(TESSERA_EMULATOR_TSAN)
  __tsan_acquire(&m.tsan_begin);
#endif
  (*m.body)();
  check_end();
#if defined(TESSERA_EMULATOR_TSAN)
  __tsan_release(&m.tsan_end);
#endif
  m.running->state = State::done;
  --m.live;
  switch_to(next());
  std::abort();
}

// Prepares a stack on which fiber_main() begins. The tops are spread: otherwise all would fall into
// the same cache sets.
void prepare_stack(Fiber& fiber) {
  const std::size_t spread = static_cast<std::size_t>(fiber.index.thread) * 320 % 16384 / 16 * 16;
  auto** top = reinterpret_cast<void**>(fiber.stack + fiber.stack_bytes - spread);
  *--top = nullptr;  // fiber_main's return address; aligns rsp as the ABI demands
  *--top = reinterpret_cast<void*>(&fiber_main);
  constexpr int kSaved = 6;
  for (int i = 0; i < kSaved; ++i) *--top = nullptr;
  fiber.stack_pointer = static_cast<void*>(top);
}

void prepare_fibers(int threads) {
  Machine& m = machine();
  const std::size_t there = m.fibers.size();
  if (there < static_cast<std::size_t>(threads)) m.fibers.resize(static_cast<std::size_t>(threads));
  for (std::size_t i = there; i < m.fibers.size(); ++i) {
    void* stack = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) fail("no memory for the stack of a thread");
    m.fibers[i].stack = static_cast<std::byte*>(stack);
#if defined(TESSERA_EMULATOR_TSAN)
    m.fibers[i].tsan = __tsan_create_fiber(0);
#endif
  }
}

void prepare_home() {
  Machine& m = machine();
#if defined(TESSERA_EMULATOR_TSAN)
  m.home.tsan = __tsan_get_current_fiber();
  constexpr std::size_t kMaxDeclarations = 64;
  m.shared.reserve(kMaxDeclarations);
  if (m.tsan_shared == nullptr) m.tsan_shared = from_heap(kMaxShared);
#endif
#if defined(__SANITIZE_ADDRESS__)
  pthread_attr_t attributes;
  void* lowest = nullptr;
  if (::pthread_getattr_np(::pthread_self(), &attributes) != 0) fail("pthread_getattr_np");
  ::pthread_attr_getstack(&attributes, &lowest, &m.home.stack_bytes);
  ::pthread_attr_destroy(&attributes);
  m.home.stack = static_cast<std::byte*>(lowest);
#endif
  m.running = &m.home;
}

void run_block(std::int64_t x, std::int64_t y, Grid grid) {
  Machine& m = machine();
  m.live = m.threads;
  m.at_sync = 0;
  m.at_shuffle.assign(static_cast<std::size_t>(m.threads / kWarpSize), 0);
  m.shared.clear();
#if defined(TESSERA_EMULATOR_TSAN)
  __tsan_release(&m.tsan_begin);
#endif
  for (int thread = 0; thread < m.threads; ++thread) {
    Fiber& fiber = m.fibers[static_cast<std::size_t>(thread)];
    fiber.index = {
        .thread = thread, .block_x = x, .block_y = y, .blocks_x = grid.x, .blocks_y = grid.y};
    fiber.turn = false;
    fiber.first_copy = fiber.copy_count = fiber.committed_groups = 0;
    prepare_stack(fiber);
    wake(fiber);
  }
  switch_to(next());
#if defined(TESSERA_EMULATOR_TSAN)
  __tsan_acquire(&m.tsan_end);
#endif
}

}  // namespace

Options& options() {
  static Options only;
  return only;
}

const Current& current() {
  return machine().running->index;
}

void run_grid(const char* kernel, Grid grid, int threads, int max_shared,
              const std::function<void()>& body) {
  Machine& m = machine();
  m.kernel = kernel;
  m.body = &body;
  m.threads = threads;
  m.random = options().seed;
  m.max_shared = static_cast<std::size_t>(max_shared);
  m.dynamic_shared = grid.dynamic_shared_bytes;
  if (m.max_shared > kMaxShared)
    fail(fmt::format("{} bytes of shared memory a block, no GPU has more than {}", m.max_shared,
                     kMaxShared));
  if (m.dynamic_shared > m.max_shared)
    fail(fmt::format("{} bytes of shared memory, {} are there", m.dynamic_shared, m.max_shared));
  if (threads < kWarpSize || threads > kMaxThreads || threads % kWarpSize != 0)
    fail(fmt::format("blocks of {} threads", threads));
  constexpr unsigned kMaxX = (1U << 31) - 1;
  constexpr unsigned kMaxY = 65535;
  if (grid.x < 1 || grid.y < 1 || grid.x > kMaxX || grid.y > kMaxY)
    fail(fmt::format("a grid of {} x {} blocks", grid.x, grid.y));
  prepare_fibers(threads);
  prepare_home();
  for (unsigned y = 0; y < grid.y; ++y) {
    for (unsigned x = 0; x < grid.x; ++x) run_block(x, y, grid);
  }
  m.shared.clear();
  m.running = &m.home;
}

void sync(Place place) {
  Machine& m = machine();
  Fiber& me = *m.running;
#if defined(TESSERA_EMULATOR_TSAN)
  char* const object = &m.tsan_sync[me.turn ? 1 : 0];
  me.turn = !me.turn;
  __tsan_release(object);
#endif
  me.place = place;
  me.state = State::at_sync;
  if (m.at_sync++ == 0) {
    m.sync_place = place;
  } else if (m.sync_place.line != place.line || std::string_view(m.sync_place.file) != place.file) {
    fail(fmt::format("one thread is at the sync() at {}:{}, another", m.sync_place.file,
                     m.sync_place.line),
         &place);
  }
  if (m.at_sync < m.threads) {
    switch_to(next());
  } else {
    m.at_sync = 0;
    for (int thread = 0; thread < m.threads; ++thread) {
      Fiber& other = m.fibers[static_cast<std::size_t>(thread)];
      if (&other != &me) wake(other);
    }
    // The last thread to arrive takes its turn like all others.
    wake(me);
    switch_to(next());
  }
#if defined(TESSERA_EMULATOR_TSAN)
  __tsan_acquire(object);
#endif
}

std::uint64_t shuffle_xor(std::uint64_t bits, int lane_bits, Place place) {
  Machine& m = machine();
  Fiber& me = *m.running;
  const int warp = me.index.thread / kWarpSize;
  if (lane_bits < 1 || lane_bits >= kWarpSize)
    fail(fmt::format("shuffle_xor by {}", lane_bits), &place);
  me.place = place;
  me.bits = bits;
  me.lane_bits = lane_bits;
  me.state = State::at_shuffle;
  Fiber* const lanes = &m.fibers[static_cast<std::size_t>(warp) * kWarpSize];
  int& come = m.at_shuffle[static_cast<std::size_t>(warp)];
  if (++come < kWarpSize) {
    switch_to(next());
    return me.bits;
  }
  come = 0;
  std::uint64_t all[kWarpSize];
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if (lanes[lane].lane_bits != lane_bits || lanes[lane].place.line != place.line)
      fail("lanes of a warp are at different shuffles, one", &lanes[lane].place);
    all[lane] = lanes[lane].bits;
  }
  for (int lane = 0; lane < kWarpSize; ++lane) {
    lanes[lane].bits = all[lane ^ lane_bits];
    if (&lanes[lane] != &me) wake(lanes[lane]);
  }
  me.state = State::ready;
  return me.bits;
}

// --- Memory as a kernel sees it: shared memory, asynchronous copies to it, 16-byte accesses.

namespace {

constexpr std::size_t kMaxDeclared = 48 << 10;  // static shared memory of a kernel
constexpr char kDynamicPlace = 0;  // stands for the declaration of dynamic shared memory

std::size_t ceil_to_access(std::size_t bytes) {
  return (bytes + kAccess - 1) / kAccess * kAccess;
}

bool is_shared(const void* address) {
  return std::ranges::any_of(machine().shared, [&](const Shared& known) {
    const std::byte* const begin = known.memory.get();
    const auto* const at = static_cast<const std::byte*>(address);
    return std::less_equal<>()(begin, at) && std::less<>()(at, begin + known.bytes);
  });
}

// memset would not do: the thread sanitizer would take it for an access by the running thread.
void fill_with_nan(std::byte* begin, std::size_t bytes) {
  asm volatile("rep stosb" : "+D"(begin), "+c"(bytes) : "a"(0xff) : "memory");
}

}  // namespace

void* dynamic_shared_memory() {
  return shared_memory(&kDynamicPlace, machine().dynamic_shared);
}

void cp_async(void* to, const void* from, Place place) {
  Fiber& me = *machine().running;
  if (me.copy_count == kMaxCopies)
    fail(fmt::format("more than {} copies of a thread on their way", kMaxCopies), &place);
  const int at = (me.first_copy + me.copy_count++) % kMaxCopies;
  if (!is_shared(to)) fail(fmt::format("a copy to {}, which is no shared memory", to), &place);
  check_global(from, place);
  me.copies[at] = {to, from};
  me.copy_groups[at] = me.committed_groups;
  me.place = place;
}

void cp_async_commit() {
  ++machine().running->committed_groups;
}

const Copy* due_copy(int groups) {
  Fiber& me = *machine().running;
  if (me.copy_count == 0 || me.copy_groups[me.first_copy] >= me.committed_groups - groups)
    return nullptr;
  const Copy* const due = &me.copies[me.first_copy];
  me.first_copy = (me.first_copy + 1) % kMaxCopies;
  --me.copy_count;
  return due;
}

void* shared_memory(const void* place, std::size_t bytes) {
  Machine& m = machine();
  for (const Shared& known : m.shared) {
    if (known.place != place) continue;
    if (known.bytes != bytes) fail("one declaration of shared memory has two sizes");
    return known.memory.get();
  }
  std::size_t declared = 0;  // static shared memory so far
  for (const Shared& known : m.shared)
    declared += known.place != &kDynamicPlace ? ceil_to_access(known.bytes) : 0;
  if (place != &kDynamicPlace) {
    declared += bytes;
    const std::size_t there = std::min(kMaxDeclared, m.max_shared - m.dynamic_shared);
    if (declared > there)
      fail(fmt::format("{} bytes of shared memory, {} are there", declared, there));
  }
#if defined(TESSERA_EMULATOR_TSAN)
  std::size_t before = 0;
  for (const Shared& known : m.shared) before += ceil_to_access(known.bytes);
  m.shared.push_back({place, bytes, {m.tsan_shared.get() + before, [](void*) {}}});
#else
  m.shared.push_back({place, bytes, from_heap(bytes)});
#endif
  std::byte* const memory = m.shared.back().memory.get();
  fill_with_nan(memory, bytes);
  return memory;
}

void check_aligned(const void* address, Place place) {
  if (reinterpret_cast<std::uintptr_t>(address) % kAccess != 0)
    fail(fmt::format("a 16-byte access to {}", address), &place);
}

void check_global(const void* address, Place place) {
  if (is_shared(address))
    fail(fmt::format("an access to global memory, but {} is shared memory", address), &place);
}

}  // namespace tessera::trainer::cuda::emulator
