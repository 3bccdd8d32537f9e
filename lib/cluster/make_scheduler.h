// The scheduler of a cluster file, by its kind.
#pragma once

#include <memory>
#include <string>

#include "lib/cluster/scheduler.h"

namespace tessera::cluster {

// The trainer of a cluster of kind local: the one that its file names, else the one beside this
// program.
std::filesystem::path local_trainer(const Cluster& cluster);

// Error(refused) for kinds that can be planned for but not run on yet.
std::unique_ptr<Scheduler> make_scheduler(const Cluster& cluster, const std::string& user);

}  // namespace tessera::cluster
