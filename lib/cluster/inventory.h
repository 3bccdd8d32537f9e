// SPDX-License-Identifier: Apache-2.0
// Loads what a grid names: models, clusters and GPUs, as expansion wants them.
#pragma once

#include <map>
#include <string>

#include "lib/cluster/cluster_file.h"
#include "lib/sweep/expand.h"

namespace tessera::cluster {

struct Loaded {
  sweep::Inventory inventory;
  std::map<std::string, Cluster> clusters;  // by the name that points have
};

// `gpu_catalogue`: a file that adds to the built-in one, or empty. Error(input) at the place that
// names what is not there, or where two clusters of one name are two files.
Loaded load_inventory(const sweep::Grid& grid, const std::string& gpu_catalogue);

// What expansion sees of a cluster. A local one has this machine's CPUs.
sweep::ClusterView view_of(const Cluster& cluster);

}  // namespace tessera::cluster
