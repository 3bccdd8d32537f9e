// SPDX-License-Identifier: Apache-2.0
// The nodes of a SlurmSite by partition and by kind of GPU, and which partition a cluster file is
// for. Pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lib/cluster/slurm/site.h"

namespace tessera::cluster {

// GPUs of one of Slurm's types.
struct PartitionGpu {
  std::string type;           // empty: Slurm has none
  std::int64_t per_node = 0;  // the most that a node has
  std::int64_t nodes = 0;     // that have so many
  std::int64_t cpus = 0;      // the fewest of such a node
  std::vector<std::string> features;
  std::map<std::int64_t, std::int64_t> fewer;  // nodes that have only so many

  // As --gres names it without the count: "gpu:h100", "gpu".
  std::string gres() const { return type.empty() ? "gpu" : "gpu:" + type; }
};

struct Partition {
  std::string name;
  bool is_default = false;
  bool is_up = false;
  std::optional<std::int64_t> max_time_s;
  std::int64_t nodes = 0;
  std::int64_t gpu_nodes = 0;
  std::int64_t cpus = 0;                       // the fewest of a node
  std::map<std::string, std::int64_t> states;  // nodes in each
  std::vector<PartitionGpu> gpus;              // of most nodes first
};

// In the order of sinfo.
std::vector<Partition> partitions_of(const SlurmSite& site);

// The one of this name, or with none asked for: the default one if it has GPUs or none has any,
// else the one with most nodes that have; of those that are up, if any is. nullptr: there is no
// partition. Error(usage) names those there are.
const Partition* choose_partition(const std::vector<Partition>& all, const std::string& asked);

}  // namespace tessera::cluster
