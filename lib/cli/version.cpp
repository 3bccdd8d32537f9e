#include "lib/cli/version.h"

namespace tessera::cli {

std::string version_line(const std::string& program) {
  const std::string commit = TESSERA_COMMIT;
  return program + " " + TESSERA_VERSION + (commit.empty() ? "" : " " + commit);
}

}  // namespace tessera::cli
