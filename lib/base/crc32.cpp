// SPDX-License-Identifier: Apache-2.0
#include "lib/base/crc32.h"

#include <fmt/format.h>

#include <array>

namespace tessera {

namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit)
      value = (value & 1) != 0 ? 0xEDB88320U ^ (value >> 1) : value >> 1;
    table[i] = value;
  }
  return table;
}

constexpr auto kTable = make_table();
constexpr std::string_view kTail = R"(,"crc":"00000000"})";

}  // namespace

std::uint32_t crc32(std::string_view bytes, std::uint32_t before) {
  std::uint32_t value = ~before;
  for (const char c : bytes)
    value = kTable[(value ^ static_cast<unsigned char>(c)) & 0xFFU] ^ (value >> 8);
  return ~value;
}

std::string seal(std::string_view object) {
  const std::string_view body = object.substr(0, object.size() - 1);
  return fmt::format(R"({},"crc":"{:08x}"}})", body, crc32(body));
}

bool seal_holds(std::string_view line) {
  if (line.size() <= kTail.size() || line.front() != '{') return false;
  const std::string_view body = line.substr(0, line.size() - kTail.size());
  return line == fmt::format(R"({},"crc":"{:08x}"}})", body, crc32(body));
}

}  // namespace tessera
