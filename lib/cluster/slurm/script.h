// SPDX-License-Identifier: Apache-2.0
// The batch script of a job: text that a person can read, edit and start again. Pure.
//
// `sbatch FILE` alone reproduces the job. Nothing of the submitter's environment is in it or in the
// job's: it begins with what a login on the node sets (Slurm before 23.02) or with nothing, and has
// what the cluster file and the runs set.
//
// Each run has one srun with a task a rank in the run's folder, TESSERA_SPEC from a quoted
// here-document, out.<attempt>.<restart>.<rank> for people, the exit code of the rank that failed
// first (128 + n: by signal n), else srun's, in exit.<attempt>.<restart>. What the script itself
// says is in script.<attempt>.out of the run.
#pragma once

#include <filesystem>
#include <string>

#include "lib/cluster/cluster_file.h"
#include "lib/cluster/scheduler.h"
#include "lib/cluster/slurm/job.h"

namespace tessera::cluster {

// Error(refused) for what Slurm cannot be told: ranks that do not spread evenly over nodes, a value
// with a line feed, a path with a backslash; Error(input) if there is no trainer.
std::string slurm_script(const Cluster& cluster, const Job& job, const SlurmScriptOptions& options);

// In the folder of the job's first run.
std::filesystem::path slurm_script_path(const Job& job);

}  // namespace tessera::cluster
