// SPDX-License-Identifier: Apache-2.0
// The byte-level packer: text files of any size into one token file (token_file.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>

namespace tessera::trainer {

// A byte is its own id; kEndOfFile follows each file.
inline constexpr std::int32_t kEndOfFile = 256;
inline constexpr std::int64_t kByteVocab = 257;

struct Packed {
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;  // of the written file
};

// Packs `inputs`, in order, into `out`; "-" is stdin. Ids have 2 bytes. It streams, so inputs may
// be larger than memory. `out` appears when it is whole and on the disk; until then there is a
// temporary file beside it, which every error removes. `progress` gets a line about every two
// seconds.
//
// Error(usage) if there is something at `out` already: it is never overwritten. Error(failed) if
// something cannot be read or written. Error(interrupted) once `stop` is not 0.
Packed pack_bytes(const std::filesystem::path& out, std::span<const std::string> inputs,
                  std::FILE* progress, const std::atomic<int>& stop);

}  // namespace tessera::trainer
