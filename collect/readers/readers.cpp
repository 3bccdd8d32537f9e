// SPDX-License-Identifier: Apache-2.0
#include "collect/readers/readers.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <string>

#include "collect/readers/tessera.h"

namespace tessera::collect {

std::span<const Reader* const> readers() {
  static const std::array kTable{&tessera_reader()};
  return kTable;
}

const Reader* reader_of(const std::filesystem::path& path) {
  std::string head(kHeadBytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, file.gcount())));
  const auto found = std::ranges::find_if(
      readers(), [&](const Reader* reader) { return reader->recognises(head); });
  return found == readers().end() ? nullptr : *found;
}

}  // namespace tessera::collect
