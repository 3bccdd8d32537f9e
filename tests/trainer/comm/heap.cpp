// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/comm/heap.h"

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

void* operator new(std::size_t bytes) {
  ++count;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
