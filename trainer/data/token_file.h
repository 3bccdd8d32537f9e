// SPDX-License-Identifier: Apache-2.0
// Files of packed tokens: the ids of a tokenised text one after another, nothing between them.
//
// Two kinds, told by the end of the name:
//
//   *.u16, *.u32   raw: nothing but ids of 2 or 4 bytes (nanoGPT's train.bin is a .u16)
//   anything else  ours: a header of 64 bytes, then the ids. All numbers are little-endian:
//
//     offset  bytes
//          0      8  "TESSTOK\n"
//          8      4  version of the format: 1
//         12      4  bytes of an id: 2 or 4
//         16      8  vocabulary: ids are below it; 0: not declared
//         24      8  number of tokens
//         32     28  zeros
//         60      4  CRC-32 (IEEE) of the 60 bytes before
//
// A file is as long as its header says, to the byte: one that was cut short is never trained on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "lib/base/file.h"

namespace tessera::trainer {

inline constexpr std::int64_t kTokenHeaderBytes = 64;

struct TokenLayout {
  int bytes_per_token = 2;  // 2 or 4
  std::int64_t vocab = 0;   // 0: not declared
  std::int64_t tokens = 0;
};

// Returns the header of a file of ours.
std::array<std::byte, kTokenHeaderBytes> token_header(const TokenLayout& layout);

// A token file, mapped into memory. Every fault is an Error(failed) of one line that begins with
// the path. Const members may be called from several threads.
class TokenFile {
 public:
  // Opens and maps the file. It is an error if the file is missing, unreadable, empty, no regular
  // file, of neither kind, or has the wrong length.
  explicit TokenFile(std::filesystem::path path);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const TokenLayout& layout() const { return layout_; }

  // Copies tokens `begin`, `begin` + 1, ... from the mapping to `ids`. They must lie in the file.
  // Allocates nothing and keeps no page mapped afterwards, so the file never counts as memory of
  // this process beyond what is being read. It is an error if an id is not below `vocab`, or if the
  // file no longer has the length that it was opened with. (A file that is cut short in the
  // microseconds between this check and the copy ends the process with SIGBUS, as it does every
  // reader of a mapping: replace data files by rename, never in place.)
  void read(std::int64_t begin, std::span<std::int32_t> ids, std::int64_t vocab) const;

  // Reads the stored bytes from token `begin` on, by read(2). Use it to check much of the file
  // without mapping it: a fault of the disk is then an error and no signal.
  void fetch(std::int64_t begin, std::span<std::byte> bytes) const;

  // Checks that the ids in `bytes` (whole ids, the first is token `begin`) are below `vocab`. The
  // error names position, id and vocabulary.
  void require_below(std::int64_t vocab, std::int64_t begin,
                     std::span<const std::byte> bytes) const;

 private:
  std::int64_t offset_of(std::int64_t token) const;

  std::filesystem::path path_;
  FileDescriptor file_;
  TokenLayout layout_;
  std::int64_t size_ = 0;   // bytes of the file
  std::int64_t begin_ = 0;  // where the tokens begin
  const std::byte* mapping_ = nullptr;
};

}  // namespace tessera::trainer
