// SPDX-License-Identifier: Apache-2.0
#include "lib/point/data_path.h"

namespace tessera::sweep {

bool names_file(std::string_view data) {
  return data.find_first_of("/.") != std::string_view::npos;
}

std::string located_data(const std::string& written, const std::filesystem::path& folder) {
  if (!names_file(written)) return written;
  return std::filesystem::absolute(folder / written).lexically_normal().string();
}

}  // namespace tessera::sweep
