// SPDX-License-Identifier: Apache-2.0
// A folder of a test's own, removed at its end.
#pragma once

#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tessera::test {

// Where tests put their folders: TESSERA_TEST_TMP, or memory, where what is synced to disk costs
// nothing, if it has a gibibyte and runs programs, or /tmp.
inline const std::filesystem::path& temporary_base() {
  static const std::filesystem::path base = [] {
    if (const char* named = std::getenv("TESSERA_TEST_TMP")) return std::filesystem::path(named);
    const char* memory = "/dev/shm";
    struct statvfs file_system{};
    constexpr unsigned long kEnough = 1UL << 30;
    if (::access(memory, W_OK | X_OK) == 0 && ::statvfs(memory, &file_system) == 0 &&
        (file_system.f_flag & ST_NOEXEC) == 0 &&
        file_system.f_bavail * file_system.f_frsize >= kEnough)
      return std::filesystem::path(memory);
    return std::filesystem::path("/tmp");
  }();
  return base;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    static int count = 0;
    path_ = temporary_base() /
            ("tessera-t" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace tessera::test
