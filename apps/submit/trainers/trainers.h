// SPDX-License-Identifier: Apache-2.0
// What the trainers on clusters can do, as `submit doctor` heard it from their nodes, remembered
// for this user: a plan knows what its --RUN would drop without asking a node each time.
//
// Kept in <state directory>/trainers/<cluster>.json (docs/formats.md, "Names and files").
#pragma once

#include <optional>
#include <string>

#include "apps/submit/trainers/capabilities.h"
#include "lib/cluster/cluster_file.h"

namespace tessera::submit {

struct NodeTrainer {
  std::string utc;   // when it was asked
  std::string node;  // where
  std::string version;
  std::string capabilities_json;
  Capabilities can;  // the same, read
};

// Remembers the trainer on the nodes of an entry of the cluster's gpus. Error(io).
void remember_trainer(const cluster::Cluster& cluster, const std::string& gpu,
                      const NodeTrainer& trainer);

// Nothing: never asked, or the cluster file names another trainer since then. What cannot be read
// is as if it were not there.
std::optional<NodeTrainer> remembered_trainer(const cluster::Cluster& cluster,
                                              const std::string& gpu);

}  // namespace tessera::submit
