// SPDX-License-Identifier: Apache-2.0
// Files written so that a reader never sees half of one, and errors that name the path.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// Whole content; Error(io) with path and cause.
std::string read_file(const std::filesystem::path& path);

// Nothing if there is no such file; Error(io) if it is there and cannot be read.
std::optional<std::string> read_file_if_exists(const std::filesystem::path& path);

// Whether there is something at `path` that could be read as a file: a pipe too, no folder.
bool is_file(const std::filesystem::path& path);

// Error(input) at `where`: "no sweep file 'x/y.yaml'", or that it is a folder. kind: "sweep", ...
[[noreturn]] void throw_no_file(const std::filesystem::path& path, std::string_view kind,
                                std::string_view where);

// Writes beside `path`, syncs, renames: afterwards `path` has either its old content or the new
// one. Error(io) else, and nothing is left behind.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Makes the folder and its parents. Error(io) with path and cause.
void make_directories(const std::filesystem::path& path);

// Owns a file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor();

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release();

 private:
  int fd_ = -1;
};

// One write(2) per call unless the kernel takes less (then the rest follows). Error(io), naming
// `path`.
void write_all(const FileDescriptor& file, std::string_view bytes,
               const std::filesystem::path& path);

// "path: what: cause of errno", as Error(io).
[[noreturn]] void throw_errno(const std::filesystem::path& path, std::string_view what,
                              int error_number);

}  // namespace tessera
