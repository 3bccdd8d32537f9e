// Which rank of how many this process is, and where it meets the others: told by our own variables,
// by Slurm's or by torchrun's.
//
// | of            | ours                 | Slurm (a step of srun)    | torchrun                 |
// |---|---|---|---|
// | rank          | TESSERA_RANK         | SLURM_PROCID              | RANK                     |
// | size          | TESSERA_RANKS        | SLURM_STEP_NUM_TASKS      | WORLD_SIZE               |
// | on this node  | TESSERA_LOCAL_RANK   | SLURM_LOCALID             | LOCAL_RANK               |
// | node          | TESSERA_NODE         | SLURM_NODEID              | GROUP_RANK               |
// | nodes         | TESSERA_NODES        | SLURM_STEP_NUM_NODES      | WORLD_SIZE/LOCAL_WORLD_SIZE
// |
//
// The first column that names a rank is used whole; ours wins over Slurm's, Slurm's over
// torchrun's. Slurm's are used only inside a step (SLURM_STEP_ID of srun, not of the batch script).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tessera::trainer {

struct Place {
  int rank = 0;  // 0 <= rank < ranks
  int ranks = 1;
  int local_rank = 0;
  int node = 0;
  int nodes = 1;
  std::string from;  // "TESSERA_*", "SLURM_*", "torchrun", or empty: alone
  std::string
      job;  // "18231.0" on Slurm: job and step; what makes two meetings differ. May be empty
};

// `variable` looks one up (std::getenv, or a test's map). Nothing set: rank 0 of 1. Error(spec)
// naming the variable where one is missing, no number or contradicts another.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Place place_of(const Environment& variable);

}  // namespace tessera::trainer
