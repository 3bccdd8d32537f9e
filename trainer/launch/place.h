// SPDX-License-Identifier: Apache-2.0
// What launchers and schedulers say in a process's environment: which rank of how many it is, and
// in which job. Their variables are named here and nowhere else in the trainer; a new launcher is a
// column here.
//
// | of           | ours                 | Slurm (a step of srun)     | torchrun           |
// |--------------|----------------------|----------------------------|--------------------|
// | rank         | TESSERA_RANK         | SLURM_PROCID               | RANK               |
// | size         | TESSERA_RANKS        | SLURM_STEP_NUM_TASKS       | WORLD_SIZE         |
// | on this node | TESSERA_LOCAL_RANK   | SLURM_LOCALID              | LOCAL_RANK         |
// | node         | TESSERA_NODE         | SLURM_NODEID               | GROUP_RANK         |
// | nodes        | TESSERA_NODES        | SLURM_STEP_NUM_NODES       | size / (1)         |
// | job          | TESSERA_JOB, or none | SLURM_JOB_ID.SLURM_STEP_ID | TORCHELASTIC_RUN_ID |
//
// (1) LOCAL_WORLD_SIZE, the ranks of a node.
//
// One column is used whole, the first of these: ours, if any of its variables is set; torchrun's,
// if torchrun itself set it (TORCHELASTIC_RUN_ID: one `srun torchrun` a node starts more ranks
// than the step has tasks); Slurm's, inside a step (SLURM_STEP_ID of srun, not of the batch
// script); torchrun's, if RANK is set, whoever set it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::trainer {

struct Place {
  int rank = 0;  // 0 <= rank < ranks
  int ranks = 1;
  int local_rank = 0;
  int node = 0;
  int nodes = 1;
  std::string from;  // "TESSERA_*", "SLURM_*", "torchrun", or empty: alone
  // Tells two meetings apart: "18231.0" on Slurm, job and step; "myrun.1" on torchrun, run and
  // restart count. May be empty.
  std::string job;
};

// Reads the place. `variable` looks a variable up (std::getenv, or a test's map). Nothing set: rank
// 0 of 1. Error(spec) names the variable that is missing, no number or contradicts another. An
// empty value counts as not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Place place_of(const Environment& variable);

// The scheduler's job that a process is in: Slurm's SLURM_JOB_ID, SLURM_ARRAY_JOB_ID with
// SLURM_ARRAY_TASK_ID, and SLURM_RESTART_COUNT.
struct SchedulerJob {
  std::string id;   // "4711", of an array's element "4711_3"; empty: in none
  int restart = 0;  // how often the scheduler has started the job again
};
SchedulerJob scheduler_job(const Environment& variable);

// Tells whether a scheduler's variable, "NAME" or "NAME=value", is about the job and no secret.
bool tells_of_job(std::string_view variable);

// Returns std::getenv's value. The strings are copied: variables are set before threads start.
std::optional<std::string> process_environment(const std::string& name);

// Names a rank in messages: "rank 3", with several nodes "rank 3 of node 1".
std::string rank_name(int rank, int node, int nodes);

}  // namespace tessera::trainer
