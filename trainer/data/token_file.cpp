// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/token_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "lib/base/crc32.h"
#include "lib/base/error.h"

namespace tessera::trainer {

namespace fs = std::filesystem;

namespace {

static_assert(std::endian::native == std::endian::little, "token files are read as they are");

constexpr std::string_view kMagic = "TESSTOK\n";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kSealed = 60;  // bytes of the header that its CRC covers
constexpr std::int64_t kMostTokens = std::int64_t{1} << 60;

// The kernel maps at most this much on each side of a page that is touched: a huge page.
constexpr std::int64_t kMappedAround = std::int64_t{2} << 20;
constexpr std::int64_t kPage = 4096;

using Header = std::array<std::byte, kTokenHeaderBytes>;

template <class T>
T at(const Header& header, std::size_t offset) {
  T value;
  std::memcpy(&value, header.data() + offset, sizeof value);
  return value;
}

template <class T>
void put(Header& header, std::size_t offset, T value) {
  std::memcpy(header.data() + offset, &value, sizeof value);
}

std::uint32_t seal_of(const Header& header) {
  return crc32({reinterpret_cast<const char*>(header.data()), kSealed});
}

[[noreturn]] void fault(const fs::path& path, std::string_view what, std::string_view fix = {}) {
  throw Error(ExitCode::failed, path.string(), what, fix);
}

[[noreturn]] void system_fault(const fs::path& path, int error_number) {
  fault(path, fmt::format("cannot be read: {}", std::generic_category().message(error_number)));
}

void read_at(const fs::path& path, int fd, std::int64_t offset, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(fd, bytes.data(), bytes.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) system_fault(path, errno);
    if (got == 0) fault(path, "has become shorter while it was read", "let nothing write to it");
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
}

bool is_ours(const Header& header) {
  return std::memcmp(header.data(), kMagic.data(), kMagic.size()) == 0;
}

TokenLayout layout_of(const fs::path& path, const Header& header) {
  if (const auto version = at<std::uint32_t>(header, 8); version != kVersion)
    fault(path, fmt::format("is of version {} of the format", version),
          fmt::format("this trainer reads version {}", kVersion));
  if (const auto stored = at<std::uint32_t>(header, kSealed); stored != seal_of(header))
    fault(path, fmt::format("its header is damaged: the CRC-32 is {:08x}, not {:08x}",
                            seal_of(header), stored));
  const auto bytes = at<std::uint32_t>(header, 12);
  const auto vocab = at<std::uint64_t>(header, 16);
  const auto tokens = at<std::uint64_t>(header, 24);
  if (bytes != 2 && bytes != 4)
    fault(path, fmt::format("its header says {} bytes a token", bytes), "2 or 4");
  if (vocab > std::uint64_t{1} << 32)
    fault(path, fmt::format("its header says a vocabulary of {}", vocab), "at most 2^32");
  if (tokens > static_cast<std::uint64_t>(kMostTokens))
    fault(path, fmt::format("its header says {} tokens", tokens), "at most 2^60");
  return {.bytes_per_token = static_cast<int>(bytes),
          .vocab = static_cast<std::int64_t>(vocab),
          .tokens = static_cast<std::int64_t>(tokens)};
}

TokenLayout raw_layout(const fs::path& path, std::int64_t size, int bytes_per_token) {
  if (size % bytes_per_token != 0) {
    fault(
        path, fmt::format("has {} bytes, no whole number of tokens", size),
        fmt::format("a {} file has {} bytes a token", path.extension().string(), bytes_per_token));
  }
  return {.bytes_per_token = bytes_per_token, .vocab = 0, .tokens = size / bytes_per_token};
}

[[noreturn]] void beyond(const fs::path& path, std::int64_t position, std::uint32_t id,
                         std::int64_t vocab) {
  fault(path, fmt::format("token {} is {}, beyond the vocabulary of {}", position, id, vocab),
        "data and model need the same tokeniser");
}

// Returns the index of the first id that is not below `vocab`, or the number of ids.
template <class T>
std::size_t first_beyond(const T* ids, std::size_t count, std::int64_t vocab) {
  // A first loop computes the maximum: it has no branch.
  T largest = 0;
  for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, ids[i]);
  if (static_cast<std::int64_t>(largest) < vocab) return count;
  std::size_t i = 0;
  while (static_cast<std::int64_t>(ids[i]) < vocab) ++i;
  return i;
}

}  // namespace

Header token_header(const TokenLayout& layout) {
  Header header{};
  std::memcpy(header.data(), kMagic.data(), kMagic.size());
  put(header, 8, kVersion);
  put(header, 12, static_cast<std::uint32_t>(layout.bytes_per_token));
  put(header, 16, static_cast<std::uint64_t>(layout.vocab));
  put(header, 24, static_cast<std::uint64_t>(layout.tokens));
  put(header, kSealed, seal_of(header));
  return header;
}

TokenFile::TokenFile(fs::path path)
    // O_NONBLOCK: otherwise opening a pipe would wait for its writer.
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (!file_) system_fault(path_, errno);
  struct stat status{};
  if (::fstat(file_.get(), &status) != 0) system_fault(path_, errno);
  if (S_ISDIR(status.st_mode)) fault(path_, "is a folder", "name a token file");
  if (!S_ISREG(status.st_mode))
    fault(path_, "is no regular file", "tokens are read in any order, so a pipe will not do");
  size_ = status.st_size;
  if (size_ == 0) fault(path_, "is empty");

  Header header{};
  const bool has_header = size_ >= kTokenHeaderBytes;
  if (has_header) read_at(path_, file_.get(), 0, header);
  const std::string end = path_.extension().string();
  if (end == ".u16" || end == ".u32") {
    if (has_header && is_ours(header))
      fault(path_, "has the header of a packed file, which raw tokens have not",
            fmt::format("give it another ending than {}", end));
    layout_ = raw_layout(path_, size_, end == ".u16" ? 2 : 4);
  } else {
    if (!has_header || !is_ours(header)) {
      fault(path_, "is no token file",
            "trainer pack-bytes makes one of text; raw ids are named .u16 or .u32");
    }
    layout_ = layout_of(path_, header);
    begin_ = kTokenHeaderBytes;
    const std::int64_t expected = offset_of(layout_.tokens);
    if (size_ != expected) {
      fault(path_,
            fmt::format("is {}: it has {} bytes, its header says {}",
                        size_ < expected ? "cut short" : "too long", size_, expected),
            "copy or pack it again");
    }
  }

  void* mapping =
      ::mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_SHARED, file_.get(), 0);
  if (mapping == MAP_FAILED)
    fault(path_,
          fmt::format("cannot be mapped into memory: {}", std::generic_category().message(errno)));
  mapping_ = static_cast<const std::byte*>(mapping);
  // Windows are read in a shuffled order, so read-ahead would be wasted.
  ::madvise(mapping, static_cast<std::size_t>(size_), MADV_RANDOM);
}

TokenFile::~TokenFile() {
  if (mapping_ != nullptr)
    ::munmap(const_cast<std::byte*>(mapping_), static_cast<std::size_t>(size_));
}

std::int64_t TokenFile::offset_of(std::int64_t token) const {
  return begin_ + token * layout_.bytes_per_token;
}

void TokenFile::read(std::int64_t begin, std::span<std::int32_t> ids, std::int64_t vocab) const {
  struct stat status{};
  if (::fstat(file_.get(), &status) != 0) system_fault(path_, errno);
  if (status.st_size != size_) {
    fault(path_,
          fmt::format("has become {} bytes long while it was trained on, from {}", status.st_size,
                      size_),
          "let nothing write to it");
  }
  const std::int64_t first = offset_of(begin);
  const std::int64_t end = offset_of(begin + static_cast<std::int64_t>(ids.size()));
  const std::byte* bytes = mapping_ + first;
  if (layout_.bytes_per_token == 2) {
    std::copy_n(reinterpret_cast<const std::uint16_t*>(bytes), ids.size(), ids.begin());
  } else {
    std::memcpy(ids.data(), bytes, ids.size_bytes());
  }
  // Checks the copy, not the mapping: a file that is being written to must not cause an index
  // outside of a table.
  const auto* copied = reinterpret_cast<const std::uint32_t*>(ids.data());
  if (const std::size_t at = first_beyond(copied, ids.size(), vocab); at < ids.size())
    beyond(path_, begin + static_cast<std::int64_t>(at), copied[at], vocab);

  // The pages stay in the kernel's cache; only this process unmaps them.
  const std::int64_t from = std::max<std::int64_t>(0, first / kPage * kPage - kMappedAround);
  const std::int64_t to = std::min(end + kMappedAround, size_);
  ::madvise(const_cast<std::byte*>(mapping_ + from), static_cast<std::size_t>(to - from),
            MADV_DONTNEED);
}

void TokenFile::fetch(std::int64_t begin, std::span<std::byte> bytes) const {
  read_at(path_, file_.get(), offset_of(begin), bytes);
}

void TokenFile::require_below(std::int64_t vocab, std::int64_t begin,
                              std::span<const std::byte> bytes) const {
  const auto look = [&](const auto* ids) {
    const std::size_t count = bytes.size() / sizeof *ids;
    const std::size_t found = first_beyond(ids, count, vocab);
    if (found < count) beyond(path_, begin + static_cast<std::int64_t>(found), ids[found], vocab);
  };
  if (layout_.bytes_per_token == 2) {
    look(reinterpret_cast<const std::uint16_t*>(bytes.data()));
  } else {
    look(reinterpret_cast<const std::uint32_t*>(bytes.data()));
  }
}

}  // namespace tessera::trainer
