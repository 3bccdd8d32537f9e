// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/cluster_folders.h"

#include <cstdlib>

#include "lib/model/data_folder.h"

namespace tessera::cluster {

namespace fs = std::filesystem;

fs::path user_cluster_folder() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  if (config != nullptr && *config == '/') return fs::path(config) / "tessera/clusters";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return fs::path(home) / ".config/tessera/clusters";
  return {};
}

std::vector<fs::path> cluster_folders() {
  std::vector<fs::path> folders;
  if (fs::path own = user_cluster_folder(); !own.empty()) folders.push_back(std::move(own));
  folders.push_back(data_folder() / "clusters");
  return folders;
}

}  // namespace tessera::cluster
