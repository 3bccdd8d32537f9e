// SPDX-License-Identifier: Apache-2.0
#include "lib/base/version.h"

#include <fmt/format.h>

namespace tessera {

const char* const kVersion = TESSERA_VERSION;
const char* const kCommit = TESSERA_COMMIT;

std::string version_line(std::string_view program) {
  return fmt::format("{} {}{}{}", program, kVersion, *kCommit == '\0' ? "" : " ", kCommit);
}

}  // namespace tessera
