// SPDX-License-Identifier: Apache-2.0
// This machine as a cluster: a job is a process of its own session, started at once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/cluster/scheduler.h"

namespace tessera::cluster {

// `trainer` is what every job starts. A job has one run: several make submit throw Error(refused).
// Jobs begin only after `accepted` has returned, and nothing runs if it throws; ids are pids. query
// of what another host started says `elsewhere`. A run on GPUs gets as many as it has ranks to
// itself, by CUDA_VISIBLE_DEVICES, of those that local_run_gpus names; which ones this scheduler's
// other runs have, and those that it was asked about, it knows.
std::unique_ptr<Scheduler> local_scheduler(Cluster cluster, std::filesystem::path trainer,
                                           std::string user);

// Those of an entry that runs may take (local_gpus.h), by the cluster file's env, else by this
// process's environment. Empty for "cpu".
std::vector<std::string> local_run_gpus(const Cluster& cluster, const GpuEntry& entry);

}  // namespace tessera::cluster
