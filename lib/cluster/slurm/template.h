// SPDX-License-Identifier: Apache-2.0
// The cluster file that `submit init` writes: what a site has, with each key that is not set as a
// commented line, so that who keeps it needs no other document. A pure function.
#pragma once

#include <string>
#include <vector>

#include "lib/cluster/backend.h"
#include "lib/cluster/slurm/site.h"
#include "lib/hardware/catalogue.h"

namespace tessera::cluster {

struct SlurmTemplate {
  std::string yaml;  // parse_cluster takes it
  std::string partition;
  std::int64_t nodes = 0;
  std::vector<std::string> gpus;  // entries that are set, without cpu
  // Slurm's GPUs of the partition that are no one entry of the catalogue ("gpu:a100"): they stand
  // commented out, a guess would give figures of another device.
  std::vector<std::string> open;
};

// The partition is the one asked for, else as choose_partition of partition.h does. Error(usage)
// names the partitions if there is none like the one asked for.
SlurmTemplate slurm_template(const SlurmSite& site, const hardware::Catalogue& catalogue,
                             const TemplateChoices& choices);

}  // namespace tessera::cluster
