// SPDX-License-Identifier: Apache-2.0
// What every batch script for Slurm has: the #SBATCH lines of a job, the environment that it begins
// with and the srun of its steps. slurm_script.h and probe.h write what comes between. Pure.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lib/cluster/cluster_file.h"
#include "lib/cluster/scheduler.h"

namespace tessera::cluster {

struct SlurmScriptOptions {
  std::string trainer;  // where the cluster file has none: absolute, or a name in the image
  std::string bin;      // folder of srun where that is not in everybody's PATH; may be empty
};

// For bash: as it is where nothing in it means anything, else in single quotes.
std::string shell_word(std::string_view text);

// As --time takes it: "00:10:00", "2-00:00:00"
std::string slurm_time(std::int64_t seconds);

// How long before the limit the trainers are told. Slurm may do it a minute earlier.
std::int64_t slurm_warning_s(std::int64_t time_limit_s);

class SlurmJob {
 public:
  // Both must outlive it. Error(refused) for what Slurm cannot be told: ranks that do not spread
  // evenly over nodes, no such GPU; Error(input) if there is no trainer.
  SlurmJob(const Cluster& cluster, const Job& job, const SlurmScriptOptions& options);

  const std::string& trainer() const { return trainer_; }

  // The #SBATCH lines. Where what the script prints goes and where it begins, empty: not said.
  // Error(refused) for a value with a line feed, a path with a backslash.
  std::string head(const std::filesystem::path& output,
                   const std::filesystem::path& begins_in) const;

  // Lines of bash: PATH, no token of the submitter, modules, the cluster file's env and prologue.
  std::string environment() const;

  // "srun" and its options for a task a rank, each a word of bash.
  std::vector<std::string> srun() const;

 private:
  std::int64_t ranks_per_node() const { return job_.ranks / job_.nodes; }
  std::int64_t cpus_per_task() const;
  std::string gpu_request() const;

  const Cluster& cluster_;
  const Job& job_;
  const SlurmScriptOptions& options_;
  const GpuEntry* gpu_ = nullptr;
  std::string trainer_;
};

}  // namespace tessera::cluster
