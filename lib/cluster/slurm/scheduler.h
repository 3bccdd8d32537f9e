// SPDX-License-Identifier: Apache-2.0
// Slurm by its commands: sbatch, squeue, sacct, scancel, scontrol. They run without the SBATCH_*,
// SQUEUE_*, ... of the environment and without the SLURM_* of an enclosing allocation; SLURM_CONF
// and SLURM_JWT stay. slurm_script.h writes the batch script, slurm_text.h reads the answers.
//
// submit writes run.<attempt>.json of each run, then script.<attempt>.sh in the first one's folder,
// then calls sbatch once, never twice. query calls squeue once, and sacct once for what the queue
// does not know (any more) or cannot say.
#pragma once

#include <memory>
#include <string>

#include "lib/cluster/cluster_file.h"
#include "lib/cluster/scheduler.h"

namespace tessera::cluster {

struct SlurmOptions {
  std::string trainer;  // where the cluster file names none; absolute
  // A command that has not answered by then is killed: its answer is lost. sbatch itself tries for
  // two minutes while the controller has too many jobs.
  double command_limit_s = 150;
};

// Error(refused) for what the file asks and is not acted on yet: fetch, pretest, a name
// of its own.
std::unique_ptr<Scheduler> slurm_scheduler(Cluster cluster, SlurmOptions options);

}  // namespace tessera::cluster
