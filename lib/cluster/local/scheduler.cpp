// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/local/scheduler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <thread>
#include <utility>

#include "lib/base/command.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/spawn.h"
#include "lib/cluster/local/gpus.h"
#include "lib/cluster/local/process.h"
#include "lib/cluster/node_probe.h"
#include "lib/cluster/outcome.h"

namespace tessera::cluster {

namespace fs = std::filesystem;

namespace {

constexpr double kPoll_s = 0.02;
constexpr double kAnswer_s = 60;  // a trainer that has not said what it can by then does not

class LocalScheduler final : public Scheduler {
 public:
  LocalScheduler(Cluster cluster, fs::path trainer, std::string user)
      : cluster_(std::move(cluster)), trainer_(std::move(trainer)), user_(std::move(user)) {}

  const Cluster& cluster() const override { return cluster_; }

  Submission submit(const Job& job, const Accepted& accepted) override {
    LocalStart start = start_of(job);
    const std::vector<std::string> gpus = gpus_for(job);
    if (!gpus.empty()) start.env[kVisibleGpus] = fmt::format("{}", fmt::join(gpus, ","));
    const ProcessRef process = start_local(
        start, [&](const ProcessRef& started) { accepted(std::to_string(started.pid)); });
    const RunStart& run = job.runs.front();
    children_[{run.run_dir, run.attempt}] = {.process = process, .gpus = gpus, .exit_code = {}};
    return {.kind = Submission::Kind::accepted, .job = std::to_string(process.pid), .text = {}};
  }

  std::map<fs::path, std::string> render(const Job& job) const override {
    std::map<fs::path, std::string> files;
    for (const RunStart& run : job.runs)
      files[run.run_dir / fmt::format("run.{}.json", run.attempt)] = run.spec_json + "\n";
    return files;
  }

  std::string check(const Job& job) override {
    const LocalStart start = start_of(job);
    require_startable(start.trainer);
    return fmt::format("{} can be started", start.trainer.string());
  }

  NodeReport probe(const NodeQuestion& question) override {
    if (std::ranges::find(cluster_.gpus, question.gpu, &GpuEntry::name) == cluster_.gpus.end())
      throw Error(ExitCode::refused, question.gpu, "is not in the cluster file");
    if (!question.goes_on({.phase = JobState::Phase::running}))
      throw Error(ExitCode::interrupted, question.name, "given up");
    NodeReport report;
    report.node = host_name();
    const CommandResult devices = run_command(
        {"nvidia-smi", "--query-gpu=name", "--format=csv,noheader"}, {.limit_s = kAnswer_s});
    if (devices.exit_code == 0) report.devices = lines_of(devices.out);
    const auto ask = [&](const char* what) {
      return run_command({trainer_.string(), what}, {.limit_s = kAnswer_s});
    };
    take_trainer_answers(ask("--version"), ask("--capabilities"), report);
    return report;
  }

  SiteReport examine_site(const std::function<void(const std::string&)>& /*waiting*/) override {
    return {};
  }

  std::vector<JobState> query(std::span<const OpenJob> jobs) override {
    std::vector<JobState> states;
    for (const OpenJob& job : jobs) states.push_back(state_of(job));
    return states;
  }

  void cancel(std::span<const OpenJob> jobs) override {
    for (const OpenJob& job : jobs) {
      const auto process = process_of(job);
      if (process) signal_local(*process, SIGTERM);
    }
  }

  std::vector<fs::path> outputs(const OpenRun& run) const override { return {output_of(run)}; }

  Limits limits() override { return {}; }
  double poll_s() const override { return kPoll_s; }
  bool queues() const override { return false; }

 private:
  struct Child {
    ProcessRef process;
    std::vector<std::string> gpus;
    std::optional<int> exit_code;  // once it has ended
  };

  static fs::path output_of(const OpenRun& run) {
    return run.run_dir / fmt::format("out.{}.0.0", run.attempt);
  }

  static bool has_printed(const OpenRun& run) {
    std::error_code fault;
    const auto size = fs::file_size(output_of(run), fault);
    return !fault && size > 0;
  }

  LocalStart start_of(const Job& job) const {
    if (job.runs.size() != 1) {
      throw Error(ExitCode::refused, "--pack", "this machine has no allocations to share",
                  "leave it out: runs follow each other anyway");
    }
    const RunStart& run = job.runs.front();
    return {.trainer = trainer_,
            .run_dir = run.run_dir,
            .attempt = run.attempt,
            .spec_json = run.spec_json,
            .user = user_,
            .env = run.env,
            .unset = run.unset,
            .ranks = static_cast<int>(job.ranks)};
  }

  // Empty: the run's own environment says which, or it needs none.
  std::vector<std::string> gpus_for(const Job& job) {
    const auto entry = std::ranges::find(cluster_.gpus, job.gpu, &GpuEntry::name);
    if (entry == cluster_.gpus.end() || entry->name == "cpu") return {};
    const RunStart& run = job.runs.front();
    const auto said = run.env.find(kVisibleGpus);
    const auto by_file = cluster_.env.find(kVisibleGpus);
    const bool is_of_file =
        said != run.env.end() && by_file != cluster_.env.end() && said->second == by_file->second;
    if (said != run.env.end() && !is_of_file) return {};
    std::vector<std::string> taken;
    const auto add = [&](const std::vector<std::string>& gpus) {
      taken.insert(taken.end(), gpus.begin(), gpus.end());
    };
    for (auto& [place, child] : children_) {
      if (!has_ended(child)) add(child.gpus);
    }
    for (const auto& [pid, process] : adopted_) {
      if (liveness(process) == Liveness::alive) add(gpus_of_process(pid));
    }
    return choose_gpus(local_run_gpus(cluster_, *entry), taken, job.ranks);
  }

  std::optional<ProcessRef> process_of(const OpenJob& job) const {
    if (job.runs.empty()) return std::nullopt;
    const OpenRun& run = job.runs.front();
    const auto child = children_.find({run.run_dir, run.attempt});
    return child != children_.end() ? child->second.process
                                    : local_process(run.run_dir, run.attempt);
  }

  JobState state_of(const OpenJob& job) {
    const auto process = process_of(job);
    JobState state;
    if (!process) {
      if (job.host.empty() || job.host == host_name()) return state;  // it never began
      state.phase = JobState::Phase::elsewhere;
      state.reason = job.host;
      return state;
    }
    state.job = std::to_string(process->pid);
    if (process->host != host_name()) {
      state.phase = JobState::Phase::elsewhere;
      state.reason = process->host;
      return state;
    }
    const OpenRun& run = job.runs.front();
    const auto child = children_.find({run.run_dir, run.attempt});
    const bool ended =
        child != children_.end() ? has_ended(child->second) : has_ended(*process, run);
    if (!ended) {
      if (child == children_.end()) adopted_.insert_or_assign(process->pid, *process);
      state.phase = JobState::Phase::running;
      state.reason = fmt::format("process {}", process->pid);
      return state;
    }
    state.phase = JobState::Phase::ended;
    if (child != children_.end()) {
      state.exit_code = child->second.exit_code;
      const Outcome outcome = outcome_of_exit(state.exit_code.value_or(0));
      if (outcome.status != runlog::Status::ok) {
        state.end = outcome.status;
        state.end_reason = outcome.reason;
      }
    } else if (!has_log(run.run_dir, run.attempt) && !has_printed(run)) {
      // The process waits for the word of its submitter before it becomes the trainer.
      state.end = runlog::Status::missing;
      state.end_reason = "its submitter ended before it began";
    }
    return state;
  }

  // Until it is the trainer a process waits for the word of its submitter, or has just got it: for
  // these milliseconds nobody can say which, so they are waited for.
  static bool has_ended(const ProcessRef& process, const OpenRun& run) {
    constexpr int kTries = 200;
    constexpr auto kPause = std::chrono::milliseconds(5);
    const std::string specification = fmt::format("run.{}.json", run.attempt);
    for (int tries = 0; liveness(process) == Liveness::alive; ++tries) {
      const auto command = read_file_if_exists(fmt::format("/proc/{}/cmdline", process.pid));
      const bool is_trainer = command && command->find(specification) != std::string::npos;
      if (is_trainer || tries == kTries) return false;
      std::this_thread::sleep_for(kPause);
    }
    return true;
  }

  static bool has_ended(Child& child) {
    if (child.exit_code) return true;
    int status = 0;
    if (::waitpid(child.process.pid, &status, WNOHANG) != child.process.pid) return false;
    child.exit_code = exit_code_in(status);
    return true;
  }

  const Cluster cluster_;
  const fs::path trainer_;
  const std::string user_;
  std::map<std::pair<fs::path, int>, Child> children_;  // by run folder and attempt
  std::map<int, ProcessRef> adopted_;                   // runs of an earlier submit, by pid
};

}  // namespace

std::vector<std::string> local_run_gpus(const Cluster& cluster, const GpuEntry& entry) {
  if (entry.name == "cpu") return {};
  const auto by_file = cluster.env.find(kVisibleGpus);
  if (by_file != cluster.env.end()) return gpus_to_take(by_file->second, entry.per_node);
  const char* visible = std::getenv(kVisibleGpus);
  return gpus_to_take(visible == nullptr ? std::nullopt : std::optional<std::string>(visible),
                      entry.per_node);
}

std::unique_ptr<Scheduler> local_scheduler(Cluster cluster, fs::path trainer, std::string user) {
  return std::make_unique<LocalScheduler>(std::move(cluster), std::move(trainer), std::move(user));
}

}  // namespace tessera::cluster
