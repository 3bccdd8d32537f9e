// This machine as a cluster: a job is a process of its own session, started at once.
#pragma once

#include <memory>
#include <string>

#include "lib/cluster/scheduler.h"

namespace tessera::cluster {

// `trainer` is what every job starts. A job has one run: several make submit throw Error(refused).
// Jobs begin only after `accepted` has returned, and nothing runs if it throws; ids are pids. query
// of what another host started says `elsewhere`.
std::unique_ptr<Scheduler> local_scheduler(Cluster cluster, std::filesystem::path trainer,
                                           std::string user);

}  // namespace tessera::cluster
