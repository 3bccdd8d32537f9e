#include "trainer/device/cuda/emulator.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "trainer/device/cuda/emulator_machine.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
// Of a build whose kernels, but not this file, are compiled for the thread sanitizer.
#if defined(TESSERA_EMULATOR_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace tessera::trainer::cuda::emulator {

Machine& machine() {
  static Machine only;
  return only;
}

void fail(std::string_view what, const Place* place) {
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

namespace {

// Saves the registers that a call keeps on the stack, and goes on with another stack.
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
                   count(State::at_sync), count(State::at_exchange), count(State::done)),
       &first->place);
}

// The fiber to go on with; the launching thread when all have ended.
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
      ready.first = (ready.first + 1) % kMostThreads;
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

// A function of its own: fiber_main() never returns, so the address sanitizer would go on watching
// what it has on the stack.
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

// A stack that fiber_main() begins on. Tops are spread, or all would fall into the same sets of the
// caches.
void prepare_stack(Fiber& fiber) {
  const std::size_t spread = static_cast<std::size_t>(fiber.index.thread) * 320 % 16384 / 16 * 16;
  auto** top = reinterpret_cast<void**>(fiber.stack + fiber.stack_bytes - spread);
  *--top = nullptr;  // a return address of fiber_main, and rsp as the ABI wants it at its entry
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
  constexpr std::size_t kMostDeclarations = 64;
  m.shared.reserve(kMostDeclarations);
  if (m.tsan_shared == nullptr) m.tsan_shared = from_heap(kMostShared);
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
  m.at_exchange.assign(static_cast<std::size_t>(m.threads / kWarp), 0);
  m.shared.clear();
#if defined(TESSERA_EMULATOR_TSAN)
  __tsan_release(&m.tsan_begin);
#endif
  for (int thread = 0; thread < m.threads; ++thread) {
    Fiber& fiber = m.fibers[static_cast<std::size_t>(thread)];
    fiber.index = {
        .thread = thread, .block_x = x, .block_y = y, .blocks_x = grid.x, .blocks_y = grid.y};
    fiber.turn = false;
    fiber.first_copy = fiber.copy_count = fiber.ended_groups = 0;
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

void run_grid(const char* kernel, Grid grid, int threads, int most_shared,
              const std::function<void()>& body) {
  Machine& m = machine();
  m.kernel = kernel;
  m.body = &body;
  m.threads = threads;
  m.random = options().seed;
  m.most_shared = static_cast<std::size_t>(most_shared);
  m.launch_shared = grid.shared_bytes;
  if (m.most_shared > kMostShared)
    fail(fmt::format("{} bytes of shared memory a block, no GPU has more than {}", m.most_shared,
                     kMostShared));
  if (m.launch_shared > m.most_shared)
    fail(fmt::format("{} bytes of shared memory, {} are there", m.launch_shared, m.most_shared));
  if (threads < kWarp || threads > kMostThreads || threads % kWarp != 0)
    fail(fmt::format("blocks of {} threads", threads));
  constexpr unsigned kMostX = (1U << 31) - 1;
  constexpr unsigned kMostY = 65535;
  if (grid.x < 1 || grid.y < 1 || grid.x > kMostX || grid.y > kMostY)
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
    // The last to come takes its turn like all others.
    wake(me);
    switch_to(next());
  }
#if defined(TESSERA_EMULATOR_TSAN)
  __tsan_acquire(object);
#endif
}

std::uint64_t exchange(std::uint64_t bits, int lane_bits, Place place) {
  Machine& m = machine();
  Fiber& me = *m.running;
  const int warp = me.index.thread / kWarp;
  if (lane_bits < 1 || lane_bits >= kWarp)
    fail(fmt::format("shuffle_xor by {}", lane_bits), &place);
  me.place = place;
  me.bits = bits;
  me.lane_bits = lane_bits;
  me.state = State::at_exchange;
  Fiber* const lanes = &m.fibers[static_cast<std::size_t>(warp) * kWarp];
  int& come = m.at_exchange[static_cast<std::size_t>(warp)];
  if (++come < kWarp) {
    switch_to(next());
    return me.bits;
  }
  come = 0;
  std::uint64_t all[kWarp];
  for (int lane = 0; lane < kWarp; ++lane) {
    if (lanes[lane].lane_bits != lane_bits || lanes[lane].place.line != place.line)
      fail("lanes of a warp are at different shuffles, one", &lanes[lane].place);
    all[lane] = lanes[lane].bits;
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    lanes[lane].bits = all[lane ^ lane_bits];
    if (&lanes[lane] != &me) wake(lanes[lane]);
  }
  me.state = State::ready;
  return me.bits;
}

}  // namespace tessera::trainer::cuda::emulator
