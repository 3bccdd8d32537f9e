// SPDX-License-Identifier: Apache-2.0
#include "trainer/launch/place.h"

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "lib/base/error.h"

using namespace tessera;
using namespace tessera::trainer;

namespace {

using Variables = std::map<std::string, std::string>;

Place place_in(const Variables& variables) {
  return place_of([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

Variables with(Variables base, const Variables& changes) {
  for (const auto& [name, value] : changes) base[name] = value;
  return base;
}

Variables without(Variables base, const std::string& name) {
  base.erase(name);
  return base;
}

// Variables of rank 5 of 8 on the second of two nodes.
const Variables kOurs{{"TESSERA_RANK", "5"},
                      {"TESSERA_RANKS", "8"},
                      {"TESSERA_LOCAL_RANK", "1"},
                      {"TESSERA_NODE", "1"},
                      {"TESSERA_NODES", "2"}};
// Variables of a task of `srun -N2 -n8`, with those inherited from sbatch.
const Variables kSrun{
    {"SLURM_JOB_ID", "18231"},     {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "5"},
    {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "1"},
    {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_NTASKS", "16"}, {"SLURM_JOB_NUM_NODES", "4"}};
// Variables of a batch script.
const Variables kBatch{{"SLURM_JOB_ID", "18231"}, {"SLURM_PROCID", "0"},
                       {"SLURM_LOCALID", "0"},    {"SLURM_NODEID", "0"},
                       {"SLURM_NTASKS", "8"},     {"SLURM_JOB_NUM_NODES", "2"}};
const Variables kTorchrun{{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"GROUP_RANK", "1"},
                          {"TORCHELASTIC_RUN_ID", "myrun"},
                          {"TORCHELASTIC_RESTART_COUNT", "2"}};

void check_fifth(const Place& place, const std::string& from, const std::string& job) {
  CHECK(place.rank == 5);
  CHECK(place.ranks == 8);
  CHECK(place.local_rank == 1);
  CHECK(place.node == 1);
  CHECK(place.nodes == 2);
  CHECK(place.from == from);
  CHECK(place.job == job);
}

void check_alone(const Place& place) {
  CHECK(place.rank == 0);
  CHECK(place.ranks == 1);
  CHECK(place.local_rank == 0);
  CHECK(place.node == 0);
  CHECK(place.nodes == 1);
  CHECK(place.from.empty());
  CHECK(place.job.empty());
}

}  // namespace

TEST_CASE("a rank reads its place from our variables, Slurm's or torchrun's") {
  check_fifth(place_in(kOurs), "TESSERA_*", "");
  check_fifth(place_in(with(kOurs, {{"TESSERA_JOB", "x"}})), "TESSERA_*", "x");
  check_fifth(place_in(kSrun), "SLURM_*", "18231.0");
  check_fifth(place_in(kTorchrun), "torchrun", "myrun.2");
  check_fifth(
      place_in(without(without(kTorchrun, "TORCHELASTIC_RUN_ID"), "TORCHELASTIC_RESTART_COUNT")),
      "torchrun", "");
}

TEST_CASE("a process that no launcher has started is alone") {
  check_alone(place_in({}));
  check_alone(place_in({{"HOME", "/root"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "gpu-1"}}));
  check_alone(place_in({{"TESSERA_RANK", ""}, {"RANK", ""}, {"SLURM_STEP_ID", ""}}));
}

TEST_CASE("inside sbatch, salloc or an interactive step, but outside a step of srun, it is alone") {
  check_alone(place_in(kBatch));
  for (const char* step :
       {"4294967291", "4294967290", "4294967292", "4294967294", "batch", "interactive", "extern"}) {
    CAPTURE(step);
    check_alone(place_in(with(kBatch, {{"SLURM_STEP_ID", step}})));
  }
}

TEST_CASE("a step of one task is rank 0 of 1") {
  const Place place = place_in(with(kSrun, {{"SLURM_PROCID", "0"},
                                            {"SLURM_STEP_NUM_TASKS", "1"},
                                            {"SLURM_LOCALID", "0"},
                                            {"SLURM_NODEID", "0"},
                                            {"SLURM_STEP_NUM_NODES", "1"}}));
  CHECK(place.rank == 0);
  CHECK(place.ranks == 1);
  CHECK(place.from == "SLURM_*");
}

TEST_CASE("ours win; torchrun's own win over the step's in which it was started, else Slurm's do") {
  const Variables other_step =
      with(kSrun, {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_LOCALID", "0"}});
  CHECK(place_in(with(with(kTorchrun, other_step), kOurs)).from == "TESSERA_*");
  check_fifth(place_in(with(kTorchrun, other_step)), "torchrun", "myrun.2");
  // A RANK that somebody exported is not torchrun's.
  const Place place = place_in(without(with(kTorchrun, other_step), "TORCHELASTIC_RUN_ID"));
  CHECK(place.from == "SLURM_*");
  CHECK(place.ranks == 2);
}

TEST_CASE("a variable that is missing, no number or contradicts another is named") {
  struct Case {
    Variables variables;
    std::string named;
    std::string said;
  };
  std::vector<Case> cases{
      // no number
      {with(kOurs, {{"TESSERA_RANK", "five"}}), "TESSERA_RANK", "'five' is not a decimal integer"},
      {with(kOurs, {{"TESSERA_RANK", "05"}}), "TESSERA_RANK", "leading zero"},
      {with(kOurs, {{"TESSERA_RANK", "-1"}}), "TESSERA_RANK", "-1 is out of range"},
      {with(kOurs, {{"TESSERA_RANKS", "0"}}), "TESSERA_RANKS", "0 is out of range"},
      {with(kOurs, {{"TESSERA_NODES", "99999999999"}}), "TESSERA_NODES", "out of range"},
      {with(kSrun, {{"SLURM_STEP_NUM_TASKS", "8(x2)"}}), "SLURM_STEP_NUM_TASKS", "decimal"},
      {with(kSrun, {{"SLURM_STEP_ID", "one"}}), "SLURM_STEP_ID", "'one' is no step"},
      // contradictions
      {with(kOurs, {{"TESSERA_RANK", "8"}}), "TESSERA_RANK", "8, but TESSERA_RANKS is 8"},
      {with(kOurs, {{"TESSERA_NODES", "9"}}), "TESSERA_NODES", "9, but TESSERA_RANKS is 8"},
      {with(kOurs, {{"TESSERA_NODE", "2"}}), "TESSERA_NODE", "2 of 2 nodes"},
      {with(kOurs, {{"TESSERA_LOCAL_RANK", "7"}}), "TESSERA_LOCAL_RANK", "at most 7 on one"},
      {with(kSrun, {{"SLURM_PROCID", "12"}}), "SLURM_PROCID", "12, but SLURM_STEP_NUM_TASKS is 8"},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "3"}}), "LOCAL_WORLD_SIZE",
       "8 is not a multiple of 3"},
      {with(kTorchrun, {{"RANK", "4"}}), "RANK", "LOCAL_RANK 1 is 5"},
      {with(kTorchrun, {{"GROUP_RANK", "0"}}), "RANK", "5, but GROUP_RANK 0"}};
  for (const auto& [variables, prefix] :
       {std::pair(kOurs, "TESSERA_"), std::pair(kSrun, "SLURM_"), std::pair(kTorchrun, "")}) {
    for (const auto& [name, value] : variables) {
      const bool used = !name.starts_with("TORCHELASTIC") && name != "RANK" &&
                        name != "SLURM_STEP_ID" && name != "SLURM_JOB_ID" &&
                        name != "SLURM_NTASKS" && name != "SLURM_JOB_NUM_NODES";
      if (used) cases.push_back({without(variables, name), name, "is not set"});
    }
  }
  CHECK(cases.size() == 15 + 5 + 5 + 4);
  for (const Case& one : cases) {
    CAPTURE(one.named);
    CAPTURE(one.said);
    try {
      place_in(one.variables);
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::spec);
      CHECK(error.where() == one.named);
      CHECK(std::string(error.what()).find(one.said) != std::string::npos);
    }
  }
}

TEST_CASE("Slurm's variables tell the job, an array's element and restarts") {
  const auto job_in = [](const Variables& variables) {
    return scheduler_job([&](const std::string& name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
  };
  CHECK(job_in({}).id.empty());
  CHECK(job_in(kTorchrun).id.empty());
  CHECK(job_in(kSrun).id == "18231");
  CHECK(job_in(kBatch).id == "18231");
  CHECK(job_in(with(kSrun, {{"SLURM_ARRAY_JOB_ID", ""}})).id == "18231");
  // SLURM_JOB_ID of an element is a number of its own, by which nobody asks.
  CHECK(job_in(with(kSrun, {{"SLURM_ARRAY_JOB_ID", "18230"}, {"SLURM_ARRAY_TASK_ID", "3"}})).id ==
        "18230_3");
  CHECK(job_in(kSrun).restart == 0);
  CHECK(job_in(with(kSrun, {{"SLURM_RESTART_COUNT", "2"}})).restart == 2);
  for (const char* strange : {"", "-1", "two", "1000000"})
    CHECK(job_in(with(kSrun, {{"SLURM_RESTART_COUNT", strange}})).restart == 0);
}

TEST_CASE("a rank's name tells its node where there are several") {
  CHECK(rank_name(3, 0, 1) == "rank 3");
  CHECK(rank_name(3, 1, 2) == "rank 3 of node 1");
}
