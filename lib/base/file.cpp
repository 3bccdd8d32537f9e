// SPDX-License-Identifier: Apache-2.0
#include "lib/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "lib/base/error.h"

namespace tessera {

namespace fs = std::filesystem;

void throw_errno(const fs::path& path, std::string_view what, int error_number) {
  throw Error(ExitCode::io, path.string(),
              fmt::format("{}: {}", what, std::generic_category().message(error_number)));
}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

int FileDescriptor::release() {
  return std::exchange(fd_, -1);
}

std::optional<std::string> read_file_if_exists(const fs::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    throw_errno(path, "cannot be read", errno);
  }
  std::string content;
  struct stat status{};
  if (::fstat(file.get(), &status) == 0 && status.st_size > 0)
    content.reserve(static_cast<std::size_t>(status.st_size));
  std::array<char, 65536> chunk{};
  while (true) {
    const ssize_t got = ::read(file.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno(path, "cannot be read", errno);
    if (got == 0) return content;
    content.append(chunk.data(), static_cast<std::size_t>(got));
  }
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored) && !fs::is_directory(path, ignored);
}

void throw_no_file(const fs::path& path, std::string_view kind, std::string_view where) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored))
    throw Error(ExitCode::input, where, fmt::format("'{}' is a folder", path.string()),
                fmt::format("name a {} file in it", kind));
  throw Error(ExitCode::input, where, fmt::format("no {} file '{}'", kind, path.string()));
}

std::string read_file(const fs::path& path) {
  auto content = read_file_if_exists(path);
  if (!content) throw_errno(path, "cannot be read", ENOENT);
  return *std::move(content);
}

void write_all(const FileDescriptor& file, std::string_view bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(file.get(), bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) throw_errno(path, "cannot be written", errno);
    bytes.remove_prefix(static_cast<std::size_t>(wrote));
  }
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  const fs::path temporary = path.string() + fmt::format(".tmp.{}", ::getpid());
  try {
    const FileDescriptor file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file) throw_errno(path, "cannot be written", errno);
    write_all(file, content, path);
    if (::fsync(file.get()) != 0) throw_errno(path, "cannot be written", errno);
    if (::rename(temporary.c_str(), path.c_str()) != 0)
      throw_errno(path, "cannot be written", errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

void make_directories(const fs::path& path) {
  std::error_code fault;
  fs::create_directories(path, fault);
  if (fault)
    throw Error(ExitCode::io, path.string(), fmt::format("cannot be made: {}", fault.message()));
}

}  // namespace tessera
