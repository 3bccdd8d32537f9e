// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/slurm/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>

#include "lib/base/clock.h"
#include "lib/base/command.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/process.h"
#include "lib/cluster/outcome.h"
#include "lib/cluster/run_files.h"
#include "lib/cluster/slurm/commands.h"
#include "lib/cluster/slurm/judge_site.h"
#include "lib/cluster/slurm/probe.h"
#include "lib/cluster/slurm/records.h"
#include "lib/cluster/slurm/script.h"
#include "lib/cluster/slurm/state.h"
#include "lib/cluster/slurm/text.h"

namespace tessera::cluster {

namespace fs = std::filesystem;
using runlog::Status;

namespace {

// The state of an array that was looked up by its name: ended once all its elements are.
JobState together(const std::vector<JobState>& states) {
  const auto with = [&](JobState::Phase phase) {
    return std::ranges::find(states, phase, &JobState::phase);
  };
  auto shown = with(JobState::Phase::running);
  if (shown == states.end()) shown = with(JobState::Phase::pending);
  if (shown == states.end()) shown = states.begin();
  JobState state = *shown;
  if (state.job.find('_') == std::string::npos) return state;
  state.job = array_of(state.job);
  if (state.phase == JobState::Phase::ended) {
    // How, each element tells.
    state.end.reset();
    state.end_reason.clear();
    state.exit_code.reset();
  }
  return state;
}

// Returns whether one of the files says in its last 16 KiB that Slurm ended the job for its memory.
bool output_says_over_memory(const std::vector<fs::path>& outputs) {
  constexpr std::streamoff kTail = 16384;
  return std::ranges::any_of(outputs, [](const fs::path& path) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) return false;
    file.seekg(std::max<std::streamoff>(0, file.tellg() - std::streampos(kTail)));
    return says_over_memory(std::string(std::istreambuf_iterator<char>(file), {}));
  });
}

// Implements Scheduler (lib/cluster/scheduler.h) by Slurm's commands.
class SlurmScheduler final : public Scheduler {
 public:
  SlurmScheduler(Cluster cluster, SlurmOptions options)
      : cluster_(std::move(cluster)), options_(std::move(options)), user_(user_name()) {
    const auto refuse = [&](const char* key) {
      throw Error(ExitCode::refused, cluster_.source, fmt::format("'{}' is not acted on yet", key),
                  "take it out");
    };
    if (!cluster_.fetch.empty()) refuse("fetch");
    if (!cluster_.pretest.empty()) refuse("pretest");
    if (!cluster_.name_pattern.empty() && cluster_.name_pattern != "{project}--{slug}-{id}")
      refuse("name");
  }

  const Cluster& cluster() const override { return cluster_; }

  std::map<fs::path, std::string> render(const Job& job) const override {
    std::map<fs::path, std::string> files;
    files[slurm_script_path(job)] = script(job);
    for (const RunStart& run : job.runs)
      files[run.run_dir / fmt::format("run.{}.json", run.attempt)] = run.spec_json + "\n";
    return files;
  }

  Submission submit(const Job& job, const Accepted& accepted) override {
    const std::map<fs::path, std::string> files = render(job);
    // An attempt's files are never overwritten.
    for (const auto& [path, text] : files) {
      if (fs::exists(path))
        throw Error(ExitCode::conflict, path.string(), "this attempt is there already");
    }
    for (const RunStart& run : job.runs) make_directories(run.run_dir);
    for (const auto& [path, text] : files) write_file_atomically(path, text);
    // sbatch is called once: a second call could start the job twice.
    const CommandResult result = run({"sbatch", "--parsable", slurm_script_path(job).string()});
    Submission submission;
    try {
      submission = parse_sbatch(result);
    } catch (const Error&) {
      remove(files);
      throw;
    }
    if (submission.kind == Submission::Kind::accepted) {
      accepted(submission.job);
      return submission;
    }
    // What the cluster has not got may be handed over again under the same name.
    if (submission.kind != Submission::Kind::lost) remove(files);
    return submission;
  }

  std::string check(const Job& job) override {
    // By standard input: nothing is written.
    const CommandResult result =
        run_slurm({"sbatch", "--test-only"}, options_.command_limit_s, script(job));
    const std::string said = slurm_complaint(result);
    if (result.exit_code == 0 && !result.timed_out) return with_dates(said);
    switch (slurm_fault(result)) {
      case SlurmFault::unreachable:
      case SlurmFault::lost:
      case SlurmFault::busy:
        throw_unreachable("sbatch --test-only", result);
      case SlurmFault::refused:
      case SlurmFault::no_accounting:
        break;
    }
    throw Error(ExitCode::refused, job.name,
                fmt::format("the cluster would not take it: {}", said));
  }

  NodeReport probe(const NodeQuestion& question) override {
    constexpr std::int64_t kLimit_s = 300;
    const Job job{
        .name = question.name, .project = "doctor", .gpu = question.gpu, .time_limit_s = kLimit_s};
    const std::string token = fmt::format("{} {}\n", question.name, utc_now());
    const fs::path script = question.folder / "script.sh";
    write_file_atomically(question.folder / "question", token);
    write_file_atomically(script, probe_script(cluster_, job, question.folder, script_options()));
    OpenJob open{.name = job.name, .since_utc = utc_now()};
    // The job writes its answer into the folder of the question.
    const Submission submission = parse_sbatch(run({"sbatch", "--parsable", script.string()}));
    open.job = submission.job;
    try {
      if (submission.kind == Submission::Kind::accepted)
        return wait_for_node_report(question, open, token, *this);
      if (submission.kind == Submission::Kind::lost || submission.kind == Submission::Kind::busy)
        throw Error(ExitCode::unreachable, "sbatch", submission.text);
      throw Error(ExitCode::refused, "sbatch", submission.text);
    } catch (const Error&) {
      // Nobody waits for the job any more.
      end_quietly(open);
      throw;
    }
  }

  SiteReport examine_site(const std::function<void(const std::string&)>& waiting) override {
    waiting("sinfo, scontrol");
    const SlurmSite site = ask_slurm_site();
    return {.findings = judge_site(cluster_, site),
            .nodes_out_of_service = nodes_out_of_service(cluster_, site)};
  }

  std::vector<JobState> query(std::span<const OpenJob> jobs) override {
    if (jobs.empty()) return {};
    // Ask the queue first: the accounts lag behind it.
    const SlurmRecords queue = ask_queue();
    Accounts accounts;
    std::vector<std::vector<Seen>> seen;
    bool is_missing = false;
    bool is_vague = false;
    for (const OpenJob& job : jobs) {
      seen.push_back(look_up(job, queue, accounts.records));
      is_missing = is_missing || seen.back().empty();
      is_vague = is_vague || (std::ranges::any_of(seen.back(), is_vague_in_queue) && !noted(job));
    }
    // Ask the accounts only about what the queue does not know or cannot say.
    if (is_missing || is_vague) {
      accounts = ask_accounts(jobs, is_missing);
      for (std::size_t i = 0; i < jobs.size(); ++i)
        seen[i] = look_up(jobs[i], queue, accounts.records);
    }
    std::vector<JobState> states;
    for (std::size_t i = 0; i < jobs.size(); ++i)
      states.push_back(state_of(jobs[i], seen[i], accounts.are_kept));
    return states;
  }

  void cancel(std::span<const OpenJob> jobs) override {
    std::vector<std::string> ids;
    const std::vector<JobState> states = query(jobs);
    for (const JobState& state : states) {
      if (state.phase == JobState::Phase::pending || state.phase == JobState::Phase::running)
        ids.push_back(state.job);
    }
    // Plain: SIGTERM to the steps, SIGKILL after the cluster's KillWait. With --signal=TERM the
    // job would go on with its next run.
    constexpr std::size_t kIdsACall = 200;
    for (std::size_t begin = 0; begin < ids.size(); begin += kIdsACall) {
      std::vector<std::string> words{"scancel"};
      words.insert(
          words.end(), ids.begin() + static_cast<std::ptrdiff_t>(begin),
          ids.begin() + static_cast<std::ptrdiff_t>(std::min(begin + kIdsACall, ids.size())));
      cancel_some(words);
    }
  }

  std::vector<fs::path> outputs(const OpenRun& run) const override {
    return output_files(run.run_dir, run.attempt);
  }

  Limits limits() override {
    const CommandResult result = run({"scontrol", "show", "config"});
    if (result.exit_code != 0 || result.timed_out) throw_unreachable("scontrol", result);
    Limits limits;
    if (cluster_.array) {
      // The setting is the first index that is too large, so as many elements as it says.
      limits.max_array_size =
          static_cast<std::size_t>(slurm_setting(result.out, "MaxArraySize").value_or(0));
    }
    limits.max_jobs =
        static_cast<std::size_t>(slurm_setting(result.out, "MaxJobCount").value_or(0));
    return limits;
  }

  double poll_s() const override { return cluster_.poll_s; }
  bool queues() const override { return true; }

 private:
  // One job of Slurm, an array's element too, as the two know it.
  struct Seen {
    const SlurmRecord* queue = nullptr;
    const SlurmRecord* accounts = nullptr;
  };

  struct Accounts {
    SlurmRecords records;
    bool are_kept = false;  // by this cluster, answered or not
  };

  // The queue has no exit codes.
  static bool is_vague_in_queue(const Seen& seen) {
    return seen.queue != nullptr && seen.queue->state == "FAILED" &&
           seen.queue->reason != "BadConstraints";
  }

  CommandResult run(const std::vector<std::string>& words) const {
    return run_slurm(words, options_.command_limit_s);
  }

  SlurmScriptOptions script_options() const {
    return {.trainer = options_.trainer, .bin = uncommon_folder("srun")};
  }

  std::string script(const Job& job) const { return slurm_script(cluster_, job, script_options()); }

  // Cancels a job whose answer nobody needs. Errors are ignored.
  void end_quietly(const OpenJob& open) {
    try {
      cancel({&open, 1});
    } catch (const Error&) {
      return;  // its time limit is short
    }
  }

  // Removes the files of a job that the cluster has not got.
  static void remove(const std::map<fs::path, std::string>& files) {
    for (const auto& [path, text] : files) {
      std::error_code ignored;
      fs::remove(path, ignored);
    }
  }

  // Returns this user's jobs in the queue. Error(unreachable).
  SlurmRecords ask_queue() const {
    const CommandResult result =
        run({"squeue", "--noheader", "--array", "--states=all", "--user=" + user_,
             fmt::format("--format={}", kSqueueFormat)});
    if (result.exit_code != 0 || result.timed_out) throw_unreachable("squeue", result);
    return {parse_squeue(result.out), user_};
  }

  // Nobody can say that a job is not there if they do not answer: Error(unreachable) if that is
  // asked.
  Accounts ask_accounts(std::span<const OpenJob> jobs, bool is_missing) const {
    const CommandResult result =
        run({"sacct", "--noheader", "--allocations", "--parsable2", "--user=" + user_,
             "--starttime=" + sacct_search_from(jobs), fmt::format("--format={}", kSacctFormat)});
    if (result.exit_code == 0 && !result.timed_out)
      return {.records = {parse_sacct(result.out), user_}, .are_kept = true};
    if (slurm_fault(result) == SlurmFault::no_accounting) return {};
    if (is_missing) throw_unreachable("sacct", result);
    return {.are_kept = true};
  }

  // Finds the job by its id. A job that was never confirmed has none and is looked up by name: the
  // accounts count then only if the queue has no job of that name.
  static std::vector<Seen> look_up(const OpenJob& job, const SlurmRecords& queue,
                                   const SlurmRecords& accounts) {
    std::vector<Seen> seen;
    if (!job.job.empty()) {
      const Seen one{.queue = queue.find(job.job, job.name),
                     .accounts = accounts.find(job.job, job.name)};
      if (one.queue != nullptr || one.accounts != nullptr) seen.push_back(one);
      return seen;
    }
    for (const SlurmRecord* record : queue.named(job))
      seen.push_back({.queue = record, .accounts = accounts.find(record->id, job.name)});
    if (!seen.empty()) return seen;
    for (const SlurmRecord* record : accounts.named(job)) seen.push_back({.accounts = record});
    return seen;
  }

  // Returns the job's state from its records. A job without records is absent.
  JobState state_of(const OpenJob& job, const std::vector<Seen>& seen, bool accounts_are_kept) {
    if (seen.empty()) return {};
    std::vector<JobState> each;
    for (const Seen& one : seen) {
      JobState state = slurm_state(one.queue, one.accounts);
      const bool accounts_know = one.accounts != nullptr &&
                                 slurm_state(nullptr, one.accounts).phase == JobState::Phase::ended;
      // It has left the queue, and its end has been awaited long enough.
      if (one.queue == nullptr && !accounts_know && !is_awaited(state.job)) {
        state = {.phase = JobState::Phase::ended,
                 .job = state.job,
                 .end = Status::unknown,
                 .end_reason = "gone from the queue, and the accounts have no end of it"};
      }
      // The queue says FAILED without an exit code: it counts as running until the accounts know
      // more.
      if (is_vague_in_queue(one) && accounts_are_kept && !accounts_know && !noted(job) &&
          is_awaited(state.job)) {
        state = {.phase = JobState::Phase::running,
                 .job = state.job,
                 .reason = "has failed; how, the accounts do not know yet"};
      }
      each.push_back(std::move(state));
    }
    JobState state = job.job.empty() ? together(each) : each.front();
    // What the job's script noted outranks Slurm's word on how the script ended.
    if (const auto code = noted(job);
        code && *code != 0 && state.phase == JobState::Phase::ended && is_of_exit(state)) {
      const Outcome outcome = outcome_of_exit(*code);
      state.exit_code = code;
      state.end = outcome.status;
      state.end_reason = fmt::format("exit code {}: {}", *code, outcome.reason);
    }
    look_for_memory(job, state);
    return state;
  }

  // The exit code of a job with one run: what its script noted is exact, where the queue has none
  // and the accounts fold those above 128.
  static std::optional<int> noted(const OpenJob& job) {
    return job.runs.size() == 1 ? noted_exit_code(job.runs[0].run_dir, job.runs[0].attempt)
                                : std::nullopt;
  }

  // Whether the script ended by itself and failed: not ended by a limit, a node, a person.
  static bool is_of_exit(const JobState& state) {
    return state.end.has_value() && (state.exit_code || state.end == Status::failed);
  }

  // The queue knows every job that has not ended; the accounts hear of its end some seconds later.
  // Whether to wait for them still.
  bool is_awaited(const std::string& job) {
    const auto [since, is_new] = late_since_s_.try_emplace(job, monotonic_seconds());
    return monotonic_seconds() - since->second < cluster_.lookup_s;
  }

  // Without cgroups Slurm polls memory and says only in the output why it killed.
  void look_for_memory(const OpenJob& job, JobState& state) const {
    constexpr int kKilled = 137;
    if (state.phase != JobState::Phase::ended || state.end != Status::failed ||
        state.exit_code.value_or(kKilled) != kKilled)
      return;
    for (const OpenRun& run : job.runs) {
      if (!output_says_over_memory(outputs(run))) continue;
      state.end = Status::host_oom;
      state.end_reason = "Slurm ended it for taking more memory than it was given";
    }
  }

  // Calls scancel. Error(refused) with its complaint, Error(unreachable) if it does not answer.
  void cancel_some(const std::vector<std::string>& words) const {
    const CommandResult result = run(words);
    if (result.exit_code == 0 && !result.timed_out) return;
    // Some jobs may have ended meanwhile: that is no fault.
    const std::string said = slurm_complaint(result);
    if (!result.timed_out && slurm_fault(result) == SlurmFault::refused) {
      if (said.find("already completing or completed") != std::string::npos ||
          said.find("Invalid job id specified") != std::string::npos)
        return;
      throw Error(ExitCode::refused, "scancel", said);
    }
    throw_unreachable("scancel", result);
  }

  Cluster cluster_;
  SlurmOptions options_;
  std::string user_;
  std::map<std::string, double> late_since_s_;  // monotonic
};

}  // namespace

std::unique_ptr<Scheduler> slurm_scheduler(Cluster cluster, SlurmOptions options) {
  return std::make_unique<SlurmScheduler>(std::move(cluster), std::move(options));
}

}  // namespace tessera::cluster
