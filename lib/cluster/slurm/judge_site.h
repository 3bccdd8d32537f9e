// SPDX-License-Identifier: Apache-2.0
// A cluster file against what its Slurm site has and allows. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/cluster/cluster_file.h"
#include "lib/cluster/finding.h"
#include "lib/cluster/slurm/site.h"

namespace tessera::cluster {

// Returns all findings, in the order of the file's sections.
std::vector<Finding> judge_site(const Cluster& cluster, const SlurmSite& site);

// Counts the nodes of the partition that the file means which are down, drained or in maintenance.
std::int64_t nodes_out_of_service(const Cluster& cluster, const SlurmSite& site);

}  // namespace tessera::cluster
