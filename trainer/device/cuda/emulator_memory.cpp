// Memory as a kernel has it: shared memory, copies to it, 16-byte accesses.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>

#include "trainer/device/cuda/emulator_machine.h"

namespace tessera::trainer::cuda::emulator {

namespace {

constexpr std::uintptr_t kAccess = 16;
constexpr std::size_t kMostDeclared = 48 << 10;  // by a kernel: more is had by a launch alone
constexpr char kLaunchPlace = 0;                 // stands for the declaration of what a launch has

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

// Not by memset, which the thread sanitizer would take for an access by the running thread.
void fill_with_nan(std::byte* begin, std::size_t bytes) {
  asm volatile("rep stosb" : "+D"(begin), "+c"(bytes) : "a"(0xff) : "memory");
}

}  // namespace

HeapBytes from_heap(std::size_t bytes) {
  void* memory = nullptr;
  if (::posix_memalign(&memory, kAccess, bytes) != 0) fail("no memory");
  return {static_cast<std::byte*>(memory), std::free};
}

void* launch_shared_memory() {
  return shared_memory(&kLaunchPlace, machine().launch_shared);
}

void copy_ahead(void* to, const void* from, Place place) {
  Fiber& me = *machine().running;
  if (me.copy_count == kMostCopies)
    fail(fmt::format("more than {} copies of a thread on their way", kMostCopies), &place);
  const int at = (me.first_copy + me.copy_count++) % kMostCopies;
  if (!is_shared(to)) fail(fmt::format("a copy to {}, which is no shared memory", to), &place);
  check_global(from, place);
  me.copies[at] = {to, from};
  me.copy_groups[at] = me.ended_groups;
  me.place = place;
}

void end_copies() {
  ++machine().running->ended_groups;
}

const Copy* due_copy(int groups) {
  Fiber& me = *machine().running;
  if (me.copy_count == 0 || me.copy_groups[me.first_copy] >= me.ended_groups - groups)
    return nullptr;
  const Copy* const due = &me.copies[me.first_copy];
  me.first_copy = (me.first_copy + 1) % kMostCopies;
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
  std::size_t declared = 0;  // by the kernel
  for (const Shared& known : m.shared)
    declared += known.place != &kLaunchPlace ? ceil_to_access(known.bytes) : 0;
  if (place != &kLaunchPlace) {
    declared += bytes;
    const std::size_t there = std::min(kMostDeclared, m.most_shared - m.launch_shared);
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
