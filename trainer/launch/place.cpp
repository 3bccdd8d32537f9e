// SPDX-License-Identifier: Apache-2.0
#include "trainer/launch/place.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "lib/base/error.h"
#include "lib/base/numbers.h"

namespace tessera::trainer {

namespace {

constexpr int kMostRanks = 1 << 20;

// A launcher's names for the same five things.
struct Names {
  std::string_view from;
  const char* rank;
  const char* ranks;
  const char* local_rank;
  const char* node;
  const char* nodes;
  std::string_view set_by;  // who sets all of them, for the fix
};

constexpr Names kOurs{.from = "TESSERA_*",
                      .rank = "TESSERA_RANK",
                      .ranks = "TESSERA_RANKS",
                      .local_rank = "TESSERA_LOCAL_RANK",
                      .node = "TESSERA_NODE",
                      .nodes = "TESSERA_NODES",
                      .set_by = "set TESSERA_RANK, _RANKS, _LOCAL_RANK, _NODE and _NODES, or none"};
constexpr Names kSlurm{.from = "SLURM_*",
                       .rank = "SLURM_PROCID",
                       .ranks = "SLURM_STEP_NUM_TASKS",
                       .local_rank = "SLURM_LOCALID",
                       .node = "SLURM_NODEID",
                       .nodes = "SLURM_STEP_NUM_NODES",
                       .set_by = "srun sets it for each task of a step"};
constexpr Names kTorchrun{
    .from = "torchrun",
    .rank = "RANK",
    .ranks = "WORLD_SIZE",
    .local_rank = "LOCAL_RANK",
    .node = "GROUP_RANK",
    .nodes = "LOCAL_WORLD_SIZE",  // nodes are WORLD_SIZE divided by it
    .set_by =
        "torchrun sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK; unset RANK "
        "to run alone"};

std::optional<std::string> non_empty(const Environment& variable, const std::string& name) {
  std::optional<std::string> text = variable(name);
  return text && text->empty() ? std::nullopt : text;
}

[[noreturn]] void contradict(const std::string& name, const std::string& what,
                             std::string_view fix) {
  throw Error(ExitCode::spec, name, what, fix);
}

// Reads a number. Once one variable of a launcher is set, all of them must be.
int number(const Environment& variable, const char* name, int low, const Names& names) {
  const auto text = non_empty(variable, name);
  if (!text)
    throw Error(ExitCode::spec, name, fmt::format("is not set, but others of {} are", names.from),
                names.set_by);
  const auto value = parse_integer(*text);
  if (!value)
    throw Error(ExitCode::spec, name, fmt::format("'{}' {}", *text, integer_fault(*text)),
                fmt::format("a number from {}", low));
  if (*value < low || *value > kMostRanks)
    throw Error(ExitCode::spec, name, fmt::format("{} is out of range", *value),
                fmt::format("a number from {} to {}", low, kMostRanks));
  return static_cast<int>(*value);
}

// torchrun has no number of nodes, only of ranks on each.
int nodes_of(const Environment& variable, const Names& names, int ranks) {
  const int value = number(variable, names.nodes, 1, names);
  if (names.from != kTorchrun.from) return value;
  if (ranks % value != 0)
    contradict(names.nodes, fmt::format("WORLD_SIZE {} is not a multiple of {}", ranks, value),
               "as many ranks on each node");
  return ranks / value;
}

Place place_by(const Environment& variable, const Names& names) {
  Place place{.from = std::string(names.from)};
  place.ranks = number(variable, names.ranks, 1, names);
  place.rank = number(variable, names.rank, 0, names);
  place.local_rank = number(variable, names.local_rank, 0, names);
  place.node = number(variable, names.node, 0, names);
  place.nodes = nodes_of(variable, names, place.ranks);
  if (place.rank >= place.ranks)
    contradict(names.rank, fmt::format("{}, but {} is {}", place.rank, names.ranks, place.ranks),
               "ranks count from 0");
  if (place.nodes > place.ranks)
    contradict(names.nodes, fmt::format("{}, but {} is {}", place.nodes, names.ranks, place.ranks),
               "at least one rank on each node");
  if (place.node >= place.nodes)
    contradict(names.node, fmt::format("{} of {} nodes", place.node, place.nodes),
               "nodes count from 0");
  // Every other node has at least one rank.
  const int most_local = place.ranks - place.nodes + 1;
  if (place.local_rank >= most_local)
    contradict(names.local_rank,
               fmt::format("{}, but {} ranks on {} nodes are at most {} on one", place.local_rank,
                           place.ranks, place.nodes, most_local),
               "local ranks count from 0 on each node");
  return place;
}

// torchrun numbers the ranks node by node, so its variables can be checked further.
Place place_by_torchrun(const Environment& variable) {
  Place place = place_by(variable, kTorchrun);
  const int local_ranks = place.ranks / place.nodes;
  const int expected = place.node * local_ranks + place.local_rank;
  if (place.local_rank >= local_ranks || place.rank != expected)
    contradict(kTorchrun.rank,
               fmt::format("{}, but GROUP_RANK {} x LOCAL_WORLD_SIZE {} + LOCAL_RANK {} is {}",
                           place.rank, place.node, local_ranks, place.local_rank, expected),
               kTorchrun.set_by);
  if (const auto run = non_empty(variable, "TORCHELASTIC_RUN_ID"))
    place.job =
        fmt::format("{}.{}", *run, non_empty(variable, "TORCHELASTIC_RESTART_COUNT").value_or("0"));
  return place;
}

// Returns whether srun started this process. A batch script, an interactive and an external step
// have special numbers at the end of the range, or words.
bool is_srun_step(const Environment& variable) {
  constexpr std::int64_t kFirstSpecial = 0xfffffff0;
  const auto text = non_empty(variable, "SLURM_STEP_ID");
  if (!text) return false;
  for (const std::string_view word : {"batch", "interactive", "extern"}) {
    if (*text == word) return false;
  }
  const auto step = parse_integer(*text);
  if (!step || *step < 0)
    throw Error(ExitCode::spec, "SLURM_STEP_ID", fmt::format("'{}' is no step", *text),
                "srun sets it for each task of a step");
  return *step < kFirstSpecial;
}

}  // namespace

// Takes the launchers in the order that place.h gives.
Place place_of(const Environment& variable) {
  const auto is_set = [&](const char* name) { return non_empty(variable, name).has_value(); };
  if (is_set(kOurs.rank) || is_set(kOurs.ranks) || is_set(kOurs.local_rank) || is_set(kOurs.node) ||
      is_set(kOurs.nodes)) {
    Place place = place_by(variable, kOurs);
    place.job = non_empty(variable, "TESSERA_JOB").value_or("");
    return place;
  }
  if (is_set(kTorchrun.rank) && is_set("TORCHELASTIC_RUN_ID")) return place_by_torchrun(variable);
  if (is_srun_step(variable)) {
    Place place = place_by(variable, kSlurm);
    place.job = fmt::format("{}.{}", non_empty(variable, "SLURM_JOB_ID").value_or(""),
                            *non_empty(variable, "SLURM_STEP_ID"));
    return place;
  }
  if (is_set(kTorchrun.rank)) return place_by_torchrun(variable);
  return {};
}

SchedulerJob scheduler_job(const Environment& variable) {
  constexpr int kMostRestarts = 1'000'000;
  SchedulerJob job;
  const auto array = non_empty(variable, "SLURM_ARRAY_JOB_ID");
  job.id =
      array ? fmt::format("{}_{}", *array, non_empty(variable, "SLURM_ARRAY_TASK_ID").value_or(""))
            : non_empty(variable, "SLURM_JOB_ID").value_or("");
  const auto restarts = parse_integer(non_empty(variable, "SLURM_RESTART_COUNT").value_or(""));
  if (restarts && *restarts >= 0 && *restarts < kMostRestarts)
    job.restart = static_cast<int>(*restarts);
  return job;
}

bool tells_of_job(std::string_view variable) {
  return variable.starts_with("SLURM_JOB_");
}

std::optional<std::string> process_environment(const std::string& name) {
  const char* text = std::getenv(name.c_str());
  return text != nullptr ? std::optional<std::string>(text) : std::nullopt;
}

std::string rank_name(int rank, int node, int nodes) {
  return nodes > 1 ? fmt::format("rank {} of node {}", rank, node) : fmt::format("rank {}", rank);
}

}  // namespace tessera::trainer
