// SPDX-License-Identifier: Apache-2.0
// Where cluster files lie that are known by their bare names.
#pragma once

#include <filesystem>
#include <vector>

namespace tessera::cluster {

// The user's own: tessera/clusters in $XDG_CONFIG_HOME, else in ~/.config. Need not be there. Empty
// if neither variable is an absolute path.
std::filesystem::path user_cluster_folder();

// In the order of search: the user's own first, then the built-in ones.
std::vector<std::filesystem::path> cluster_folders();

}  // namespace tessera::cluster
