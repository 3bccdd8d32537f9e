// SPDX-License-Identifier: Apache-2.0
// Memory of a pool: pages straight from the kernel, so that a large pool can use huge pages and is
// returned as a whole.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::trainer::cpu {

class Pages {
 public:
  // Allocates page-aligned memory and touches it with `threads` threads, so that on a NUMA machine
  // each thread's share is near it. Error(host_oom) if the machine does not have it.
  Pages(std::int64_t bytes, int threads);
  Pages(Pages&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  Pages& operator=(Pages&&) = delete;
  ~Pages();

  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Returns the line "key: 123 kB" of /proc/meminfo in bytes; -1 if there is none.
std::int64_t meminfo_bytes(const char* key);

}  // namespace tessera::trainer::cpu
