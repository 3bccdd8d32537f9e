// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cpu/pages.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "lib/base/error.h"

namespace tessera::trainer::cpu {
namespace {

constexpr std::int64_t kPage = 4096;
constexpr const char* kFix = "a smaller micro batch, more ranks or recomputation needs less";

}  // namespace

std::int64_t meminfo_bytes(const char* key) {
  std::ifstream file("/proc/meminfo");
  const std::string wanted = std::string(key) + ":";
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(wanted, 0) != 0) continue;
    return static_cast<std::int64_t>(std::strtoll(line.c_str() + wanted.size(), nullptr, 10)) *
           1024;
  }
  return -1;
}

Pages::Pages(std::int64_t bytes, int threads) {
  if (bytes < 0) throw Error(ExitCode::internal, "allocate", fmt::format("{} bytes", bytes));
  // Linux overcommits: it promises more than it has and kills the process that touches it, so ask
  // first.
  const std::int64_t available = meminfo_bytes("MemAvailable");
  if (available >= 0 && bytes > available) {
    throw Error(ExitCode::host_oom, "allocate",
                fmt::format("{} bytes of memory are needed, {} are available", bytes, available),
                kFix);
  }
  bytes_ = static_cast<std::size_t>(bytes > 0 ? (bytes + kPage - 1) / kPage * kPage : kPage);
  void* mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    throw Error(ExitCode::host_oom, "allocate",
                fmt::format("{} bytes: {}", bytes, std::strerror(errno)), kFix);
  }
  data_ = static_cast<std::byte*>(mapped);
  madvise(mapped, bytes_, MADV_HUGEPAGE);  // a hint; if it fails, only speed is lost
  const auto pages = static_cast<std::int64_t>(bytes_) / kPage;
  std::byte* data = data_;
#pragma omp parallel for schedule(static) num_threads(threads)
  for (std::int64_t page = 0; page < pages; ++page) data[page * kPage] = std::byte{0};
}

Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace tessera::trainer::cpu
