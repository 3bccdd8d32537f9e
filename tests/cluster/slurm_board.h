// SPDX-License-Identifier: Apache-2.0
// The jobs of slurm_jobs_test.cpp. All are handed over at once, by the first test case that asks
// for one, and run beside each other and beside other tests: a time limit alone takes two minutes
// and a half.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "lib/base/process.h"
#include "lib/point/run_spec.h"
#include "tests/cluster/slurm_place.h"

namespace tessera::test {

using cluster::Cluster;
using cluster::Job;
using cluster::JobState;
using cluster::OpenJob;
using cluster::RunStart;
using cluster::Scheduler;
using cluster::Submission;

inline constexpr std::int64_t kManySteps = 1000000;  // ten minutes or more
inline constexpr const char* kSecret = "hunter2-of-the-submitter";
inline constexpr double kPatience_s =
    400;  // a time limit is looked at every 30 s, machines may be busy

// A decoder that trains 8 steps in no time, or, with many steps, until it is stopped.
inline sweep::RunSpec small_spec(const std::string& run, const std::filesystem::path& run_dir) {
  sweep::RunSpec spec;
  spec.project = "slurm";
  spec.id = "0123456789ab";
  spec.run = run;
  spec.label = "tiny";
  spec.user = user_name();
  spec.point = {.model = {.d_model = 32,
                          .n_layers = 1,
                          .n_heads = 1,
                          .n_kv_heads = 1,
                          .head_dim = 32,
                          .ffn = 64,
                          .vocab = 128},
                .lr = 1e-3,
                .seq_len = 16,
                .global_batch = 4,
                .microbatch_size = 2,
                .precision = Precision::fp32,
                .threads = 1,
                .steps = 8,
                .warmup = 2};
  spec.peak = sweep::Peak{.tflops = 0.1, .source = "measured: elsewhere"};
  spec.run_dir = run_dir.string();
  return spec;
}

// The jobs of this process, by a short name.
class Board {
 public:
  static Board& get() {
    static Board board;
    return board;
  }

  const Job& job(const std::string& name) const { return at(name).job; }
  const OpenJob& open(const std::string& name) const { return at(name).open; }
  // What Slurm said of a job that it did not take; empty: it did.
  std::string refusal(const std::string& name) const {
    const auto found = refusals_.find(name);
    return found == refusals_.end() ? "" : found->second;
  }
  const RunStart& run(const std::string& name, std::size_t index = 0) const {
    return job(name).runs.at(index);
  }
  Scheduler& scheduler() { return *plain_; }
  std::size_t size() const { return entries_.size(); }

  JobState state(const std::string& name) { return plain_->query({&open(name), 1}).front(); }
  JobState ended(const std::string& name) {
    JobState last;
    const bool is_ended = contract_wait(
        [&] {
          last = state(name);
          return last.phase == JobState::Phase::ended;
        },
        kPatience_s);
    CAPTURE(name);
    CAPTURE(last.reason);
    REQUIRE(is_ended);
    return last;
  }
  std::string output(const RunStart& run) {
    std::string all;
    for (const auto& path : plain_->outputs({run.run, run.attempt, run.run_dir}))
      all += read_file(path);
    return all;
  }
  RunStart shell_run(const std::string& name, const std::string& commands) const {
    const std::filesystem::path run_dir = folder_ / name;
    return {.run = "slurm--" + name,
            .run_dir = run_dir,
            .spec_json = R"({"dir":")" + run_dir.string() + R"(","do":")" + commands + "\"}"};
  }
  RunStart trainer_run(const std::string& name, std::int64_t steps = 8) const {
    const std::string run = "slurm--" + name;
    sweep::RunSpec spec = small_spec(run, folder_ / name);
    spec.point.steps = steps;
    spec.log_every = steps > 1000 ? 1000 : 1;
    return {.run = run,
            .run_dir = folder_ / name,
            .spec_json = run_spec_json(spec),
            .env = {{"GOMP_SPINCOUNT", "0"}}};
  }

  // What newer versions refuse at once, older ones keep waiting for ever.
  enum class IfRefused : std::uint8_t { fail, note };

  void hand_over(const std::string& name, Job job, Scheduler& scheduler,
                 IfRefused if_refused = IfRefused::fail) {
    job.name = fmt::format("slurm--{}-{}", name, ::getpid());
    job.project = "slurm";
    if (job.gpu.empty()) job.gpu = "cpu";
    if (job.time_limit_s == 0) job.time_limit_s = 600;
    Entry entry{.job = job};
    const Submission submission = scheduler.submit(job, [](const std::string&) {});
    CAPTURE(name);
    CAPTURE(submission.text);
    if (if_refused == IfRefused::note && submission.kind == Submission::Kind::refused) {
      refusals_[name] = submission.text;
      return;
    }
    REQUIRE(submission.kind == Submission::Kind::accepted);
    entry.open = {.job = submission.job, .name = job.name, .since_utc = utc_now()};
    for (const RunStart& run : job.runs)
      entry.open.runs.push_back({run.run, run.attempt, run.run_dir});
    entries_[name] = entry;
  }

 private:
  struct Entry {
    Job job;
    OpenJob open;
  };

  Board() : folder_(slurm_folder() / "odd jobs 100% %j #1") {
    std::filesystem::create_directories(folder_);
    const std::filesystem::path shell = contract_trainer(slurm_folder());
    const Cluster cluster = slurm_test_cluster();
    plain_ = slurm_on(cluster, slurm_trainer());
    const auto shells = slurm_on(cluster, shell);
    // Nothing of these may reach a job: neither a secret nor what would change where it runs.
    const Variable secret("TESSERA_TEST_TOKEN", kSecret);
    const Variable of_slurm("SLURM_SECRET", kSecret);
    const Variable of_sbatch("SBATCH_PARTITION", "nowhere");
    const Variable of_squeue("SQUEUE_FORMAT", "%i");
    const Variable inside("SLURM_JOB_ID", "1");

    // The time limits first, for they take longest, and alone, so that what they stop has begun.
    hand_over("limit-trainer",
              {.runs = {trainer_run("limit-trainer", kManySteps)}, .time_limit_s = 120}, *plain_);
    hand_over(
        "limit-shell",
        {.runs = {shell_run(
                      "limit-shell",
                      "trap : USR1; trap : TERM; sleep 300 & while :; do wait; sleep 0.2; done"),
                  shell_run("limit-after", "true")},
         .time_limit_s = 120},
        *shells);
    REQUIRE(contract_wait([&] {
      return std::filesystem::exists(run("limit-trainer").run_dir / "log.1.0.0.jsonl") &&
             Contract::count(run("limit-shell"), "ran") == 1;
    }));
    hand_over("cpu", {.runs = {trainer_run("cpu")}}, *plain_);
    // Each rank of these trains for itself: more than one rank of one run comes with the
    // communication between ranks, and then the trainer itself is to be run here with ranks = 2.
    hand_over("two-nodes",
              {.runs = {shell_run("two-nodes",
                                  "echo rank $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME")},
               .ranks = 4,
               .nodes = 2},
              *shells);
    // Once both have said that they run.
    hand_over("rank-fails",
              {.runs = {shell_run("rank-fails",
                                  "until [ $(wc -l <ran) = 2 ]; do sleep 0.1; done; "
                                  "if [ $SLURM_PROCID = 1 ]; then exit 12; fi; sleep 60")},
               .ranks = 2},
              *shells);
    hand_over("packed",
              {.runs = {trainer_run("packed-1"), trainer_run("packed-2"), trainer_run("packed-3")}},
              *plain_);
    hand_over("failing", {.runs = {shell_run("failing", "echo no good >&2; exit 14")}}, *shells);
    hand_over("signal", {.runs = {shell_run("signal", "kill -SEGV $$")}}, *shells);
    Job array{.runs = {trainer_run("array-0"), trainer_run("array-1"), trainer_run("array-2")},
              .array = true};
    hand_over("array", array, *plain_);
    hand_over("environment", {.runs = {shell_run("environment", "true")}}, *shells);
    hand_over("gpus",
              {.runs = {shell_run("gpus", "echo GPUs $CUDA_VISIBLE_DEVICES")},
               .gpu = "h100_80gb",
               .ranks = 2},
              *shells);
    hand_over("many-nodes", {.runs = {shell_run("many-nodes", "true")}, .ranks = 9, .nodes = 9},
              *shells, IfRefused::note);
    hand_over("long", {.runs = {shell_run("long", "true")}, .time_limit_s = 7200}, *shells);
    hand_over("cancelled",
              {.runs = {trainer_run("cancelled", kManySteps), trainer_run("cancelled-next")},
               .time_limit_s = 3600},
              *plain_);

    Cluster other = cluster;
    other.slurm.extra = {"--dependency=afterok:" + open("failing").job};
    hand_over("dependent", {.runs = {shell_run("dependent", "true")}}, *slurm_on(other, shell));
    hand_over("after", {.runs = {shell_run("after", "true")}, .after = {open("failing").job}},
              *shells);
    other = cluster;
    other.trainer.path = "/no/such/trainer";
    hand_over("missing", {.runs = {shell_run("missing", "true")}}, *slurm_on(other, ""));
    other = cluster;
    other.slurm.mem = "60";
    hand_over("memory",
              {.runs = {shell_run("memory",
                                  "head -c 300M /dev/zero | tail -c 250M | { sleep 60; wc -c; }")}},
              *slurm_on(other, shell));
    // Its folder is gone when it starts.
    other = cluster;
    other.slurm.extra = {"--begin=now+3"};
    hand_over("unwritable", {.runs = {shell_run("unwritable", "true")}}, *slurm_on(other, shell));
    std::filesystem::remove_all(run("unwritable").run_dir);
    std::ofstream(run("unwritable").run_dir) << "a file in its place\n";
  }

  const Entry& at(const std::string& name) const { return entries_.at(name); }

  std::filesystem::path folder_;
  std::unique_ptr<Scheduler> plain_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> refusals_;
};

}  // namespace tessera::test
