// SPDX-License-Identifier: Apache-2.0
#include "lib/model/data_folder.h"

#include <cstdlib>

#include "lib/base/error.h"

namespace tessera {

namespace fs = std::filesystem;

fs::path data_folder() {
  std::error_code ignored;
  if (const char* given = std::getenv("TESSERA_DATA"); given != nullptr && *given != '\0') {
    if (!fs::is_directory(fs::path(given) / "models", ignored)) {
      throw Error(ExitCode::input, "TESSERA_DATA",
                  "'" + std::string(given) + "' has no folder models",
                  "it must name the yamls folder of Tessera");
    }
    return given;
  }
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  for (fs::path folder = program.parent_path(); !folder.empty(); folder = folder.parent_path()) {
    for (const fs::path& candidate : {folder / "yamls", folder / "share/tessera/yamls"}) {
      if (fs::is_directory(candidate / "models", ignored)) return candidate;
    }
    if (folder == folder.root_path()) break;
  }
  throw Error(ExitCode::input, "", "no yamls folder above the program",
              "set TESSERA_DATA to the yamls folder of Tessera");
}

}  // namespace tessera
