// SPDX-License-Identifier: Apache-2.0
// Token files for tests, byte by byte, without the code under test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/crc32.h"

namespace tessera::trainer::test {

inline std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>((value >> (8 * i)) & 0xFF);
  return text;
}

inline std::string raw_tokens(const std::vector<std::uint32_t>& ids, int bytes_per_token) {
  std::string text;
  for (const std::uint32_t id : ids) text += little_endian(id, bytes_per_token);
  return text;
}

struct HeaderValues {
  std::uint64_t version = 1;
  std::uint64_t bytes_per_token = 2;
  std::uint64_t vocab = 0;
  std::uint64_t tokens = 0;
};

inline std::string header_bytes(const HeaderValues& values) {
  const std::string sealed =
      "TESSTOK\n" + little_endian(values.version, 4) + little_endian(values.bytes_per_token, 4) +
      little_endian(values.vocab, 8) + little_endian(values.tokens, 8) + std::string(28, '\0');
  return sealed + little_endian(crc32(sealed), 4);
}

// Returns the bytes of a file of ours.
inline std::string packed_tokens(const std::vector<std::uint32_t>& ids, int bytes_per_token,
                                 std::uint64_t vocab = 0) {
  return header_bytes({.bytes_per_token = static_cast<std::uint64_t>(bytes_per_token),
                       .vocab = vocab,
                       .tokens = ids.size()}) +
         raw_tokens(ids, bytes_per_token);
}

}  // namespace tessera::trainer::test
