// SPDX-License-Identifier: Apache-2.0
// A kind of cluster as a value: what submit plans by before it asks a cluster anything, and how to
// make its scheduler. Each folder of lib/cluster gives one; backends.cpp has the table.
//
// All functions may be called from any thread and keep nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/cluster/cluster_file.h"
#include "lib/cluster/scheduler.h"
#include "lib/hardware/catalogue.h"

namespace tessera::cluster {

// What `submit init` asks for.
struct TemplateChoices {
  std::string name;       // of the cluster file, for what its comments say
  std::string partition;  // empty: the backend chooses
  std::string workspace;  // both absolute
  std::string trainer;
};

// The cluster file that `submit init` writes.
struct ClusterTemplate {
  std::string yaml;                // parse_cluster takes it
  std::string about;               // one line: "partition gpu of hgx, 16 nodes, b200"
  std::vector<std::string> notes;  // lines on what is left to do by hand
};

struct Backend {
  Kind kind = Kind::local;

  // Jobs are processes of this machine, started at once: no queue, no time limits, no allocation
  // for several runs. Its trainer can be asked here, its data files are seen here.
  bool is_this_machine = false;

  // Makes the scheduler. `trainer` is the one to start where the file names none; absolute.
  // Error(refused) for what the file asks and the backend does not do. Null: such a cluster can be
  // planned for, not run on.
  std::unique_ptr<Scheduler> (*make)(const Cluster& cluster, const std::string& trainer,
                                     const std::string& user) = nullptr;

  // Returns how many GPUs of the entry runs at once share out among them. Null: the cluster gives
  // each job its own.
  std::int64_t (*gpus_at_once)(const Cluster& cluster, const GpuEntry& entry) = nullptr;

  // Writes a cluster file from what the site says of itself. Error(unreachable) if there is no such
  // site here, Error(refused) if it has nothing for this user, Error(usage) for choices that it
  // does not have. Null: there is nothing to ask.
  ClusterTemplate (*write_template)(const hardware::Catalogue& catalogue,
                                    const TemplateChoices& choices) = nullptr;

  bool can_run() const { return make != nullptr; }
};

}  // namespace tessera::cluster
