// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/gloo/messages.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::trainer::comm {

std::string prepare_value(std::span<const std::span<std::byte>> registered,
                          const std::string& addresses) {
  std::string value = fmt::format("memory {}", registered.size());
  for (const std::span<std::byte> memory : registered) value += fmt::format(" {}", memory.size());
  return value + "\n" + addresses;
}

std::vector<std::span<std::byte>> sizes_in(const std::string& value) {
  std::vector<std::span<std::byte>> sizes;
  std::size_t at = value.find(' ', value.find(' ') + 1);
  const std::size_t end = value.find('\n');
  while (at < end) {
    const std::size_t next = std::min(value.find(' ', at + 1), end);
    sizes.emplace_back(static_cast<std::byte*>(nullptr),
                       std::stoull(value.substr(at + 1, next - at - 1)));
    at = next;
  }
  return sizes;
}

}  // namespace tessera::trainer::comm
