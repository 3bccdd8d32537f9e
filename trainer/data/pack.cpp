// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/pack.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "trainer/data/token_file.h"

namespace tessera::trainer {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kChunk = std::size_t{1} << 20;  // bytes of text read at once
constexpr double kProgressSeconds = 2;
constexpr const char* kStdin = "-";

[[noreturn]] void fault(const std::string& path, std::string_view what, int error_number) {
  throw Error(ExitCode::failed, path,
              fmt::format("{}: {}", what, std::generic_category().message(error_number)));
}

[[noreturn]] void is_there(const fs::path& out) {
  throw Error(ExitCode::usage, out.string(), "is there already and is not overwritten",
              "name another file, or remove it first");
}

// A temporary file that gets its name only by publish().
class Unpublished {
 public:
  explicit Unpublished(fs::path out)
      : out_(std::move(out)),
        temporary_(out_.string() + fmt::format(".tmp.{}", ::getpid())),
        file_(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
    if (!file_) fault(out_.string(), "cannot be written", errno);
  }
  Unpublished(const Unpublished&) = delete;
  Unpublished& operator=(const Unpublished&) = delete;
  ~Unpublished() { ::unlink(temporary_.c_str()); }

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t wrote = ::write(file_.get(), bytes.data(), bytes.size());
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) fault(out_.string(), "cannot be written", errno);
      bytes = bytes.subspan(static_cast<std::size_t>(wrote));
    }
  }

  void publish(std::span<const std::byte> header) {
    if (::lseek(file_.get(), 0, SEEK_SET) != 0) fault(out_.string(), "cannot be written", errno);
    write(header);
    if (::fsync(file_.get()) != 0) fault(out_.string(), "cannot be written", errno);
    // link(2) fails where rename(2) would overwrite. Not every file system has links.
    if (::link(temporary_.c_str(), out_.c_str()) == 0) return;
    if (errno == EEXIST) is_there(out_);
    if (errno != EPERM && errno != ENOTSUP && errno != ENOSYS)
      fault(out_.string(), "cannot be written", errno);
    if (fs::exists(fs::symlink_status(out_))) is_there(out_);
    if (::rename(temporary_.c_str(), out_.c_str()) != 0)
      fault(out_.string(), "cannot be written", errno);
  }

 private:
  fs::path out_;
  fs::path temporary_;
  FileDescriptor file_;
};

FileDescriptor open_input(const std::string& path) {
  if (path == kStdin) return FileDescriptor(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
  return FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

class Packer {
 public:
  Packer(Unpublished& out, std::FILE* progress, const std::atomic<int>& stop)
      : out_(out), progress_(progress), stop_(stop), text_(kChunk), ids_(kChunk) {
    out_.write(std::vector<std::byte>(kTokenHeaderBytes));  // reserves the header's place
  }

  void add(const std::string& path) {
    const FileDescriptor file = open_input(path);
    if (!file) fault(path, "cannot be read", errno);
    while (true) {
      if (stop_.load() != 0) throw Error(ExitCode::interrupted, "", "interrupted");
      const ssize_t got = ::read(file.get(), text_.data(), text_.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fault(path, "cannot be read", errno);
      if (got == 0) break;
      const auto bytes = static_cast<std::size_t>(got);
      for (std::size_t i = 0; i < bytes; ++i) ids_[i] = text_[i];
      write(bytes);
      say(path);
    }
    ids_[0] = kEndOfFile;
    write(1);
  }

  std::int64_t tokens() const { return tokens_; }

 private:
  void write(std::size_t count) {
    out_.write(std::as_bytes(std::span(ids_).first(count)));
    tokens_ += static_cast<std::int64_t>(count);
  }

  void say(const std::string& path) {
    const double now = monotonic_seconds();
    if (now - last_s_ < kProgressSeconds) return;
    last_s_ = now;
    std::fputs(
        fmt::format("{:.2f} GiB packed, in {}\n", static_cast<double>(tokens_) / (1 << 30), path)
            .c_str(),
        progress_);
  }

  Unpublished& out_;
  std::FILE* progress_;
  const std::atomic<int>& stop_;
  std::vector<std::uint8_t> text_;
  std::vector<std::uint16_t> ids_;
  std::int64_t tokens_ = 0;
  double last_s_ = monotonic_seconds();
};

}  // namespace

Packed pack_bytes(const fs::path& out, std::span<const std::string> inputs, std::FILE* progress,
                  const std::atomic<int>& stop) {
  // A first check before long work; publishing makes sure.
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(out, ignored))) is_there(out);
  if (out.extension() == ".u16" || out.extension() == ".u32") {
    throw Error(ExitCode::usage, "OUT",
                fmt::format("{}: a file of this ending is read as raw tokens, without a header",
                            out.string()),
                "another ending: corpus.tok");
  }
  Unpublished file(out);
  Packer packer(file, progress, stop);
  for (const std::string& input : inputs) packer.add(input);
  const TokenLayout layout{.bytes_per_token = 2, .vocab = kByteVocab, .tokens = packer.tokens()};
  file.publish(token_header(layout));
  return {.tokens = layout.tokens,
          .bytes = kTokenHeaderBytes + layout.tokens * layout.bytes_per_token};
}

}  // namespace tessera::trainer
