// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/train/allocations.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {
std::atomic<long> count{0};
}

namespace tessera::trainer::test {
long allocations() {
  return count.load();
}
}  // namespace tessera::trainer::test

#ifdef __SANITIZE_ADDRESS__

void* operator new(std::size_t bytes) {
  ++count;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
// std::stable_sort calls this one.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++count;
  return std::malloc(bytes);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

#else

// glibc's own names of its heap functions; operator new calls malloc.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) {
  constexpr std::size_t kJobTable = 512 << 10;
  if (bytes != kJobTable) ++count;
  return __libc_malloc(bytes);
}
void* calloc(std::size_t number, std::size_t bytes) {
  ++count;
  return __libc_calloc(number, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  ++count;
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  ++count;
  return __libc_memalign(alignment, bytes);
}
}

#endif
