#include "lib/cluster/slurm_cluster.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "lib/base/clock.h"
#include "lib/base/command.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/process.h"
#include "lib/cluster/outcome.h"
#include "lib/cluster/run_files.h"
#include "lib/cluster/slurm_script.h"
#include "lib/cluster/slurm_text.h"

namespace tessera::cluster {

namespace fs = std::filesystem;
using runlog::Status;

namespace {

// What would change what the commands do or print, or leak into a job. With --export=NIL sbatch
// still hands on each SLURM_*.
std::vector<std::string> slurm_environment() {
  constexpr std::array<std::string_view, 9> kFamilies = {"SBATCH_",  "SQUEUE_",   "SACCT_",
                                                         "SCANCEL_", "SCONTROL_", "SALLOC_",
                                                         "SINFO_",   "SACCTMGR_", "SRUN_"};
  std::vector<std::string> kept;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const bool is_theirs = std::ranges::any_of(
        kFamilies, [&](std::string_view family) { return name.starts_with(family); });
    const bool is_slurms = name.starts_with("SLURM") && name != "SLURM_CONF" && name != "SLURM_JWT";
    const bool is_set_below = name == "TZ" || name == "LC_ALL" || name == "LANGUAGE";
    if (!is_theirs && !is_slurms && !is_set_below) kept.emplace_back(text);
  }
  kept.insert(kept.end(), {"TZ=UTC", "LC_ALL=C", "SLURM_TIME_FORMAT=%s"});
  return kept;
}

// The folder of a program of PATH where it is none that everybody has.
std::string uncommon_folder(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "";
  while (!rest.empty()) {
    const std::string folder(rest.substr(0, rest.find(':')));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    if (!folder.starts_with('/') || ::access((fs::path(folder) / program).c_str(), X_OK) != 0)
      continue;
    return folder == "/usr/local/bin" || folder == "/usr/bin" || folder == "/bin" ? std::string()
                                                                                  : folder;
  }
  return {};
}

[[noreturn]] void unreachable(const std::string& command, const CommandResult& result) {
  throw Error(ExitCode::unreachable, command, slurm_complaint(result));
}

// What sacct searches from: an hour before the oldest, for clocks differ. "2026-11-29T12:41:11"
std::string search_from(std::span<const OpenJob> jobs) {
  constexpr std::time_t kSlack_s = 3600;
  constexpr std::time_t kWithoutTime_s = 30 * 86400;
  std::time_t oldest = std::time(nullptr);
  for (const OpenJob& job : jobs) {
    std::tm parts{};
    const bool is_time = ::strptime(job.since_utc.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) != nullptr;
    oldest = std::min(oldest, is_time ? ::timegm(&parts) : std::time(nullptr) - kWithoutTime_s);
  }
  oldest -= kSlack_s;
  std::tm parts{};
  ::gmtime_r(&oldest, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  return text.data();
}

// A job of this name that was there long before the hand-over is another one: of a folder that was
// thrown away. Clocks differ, so that the last minutes do not tell.
bool is_older(const SlurmRecord& record, const OpenJob& job) {
  constexpr std::int64_t kSlack_s = 600;
  std::tm parts{};
  if (!record.submit_s || ::strptime(job.since_utc.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) == nullptr)
    return false;
  return *record.submit_s + kSlack_s < ::timegm(&parts);
}

std::string array_of(const std::string& id) {
  return id.substr(0, id.find('_'));
}

// All records of this user: by id, and by name the ids in the order in which they came.
class Records {
 public:
  Records() = default;
  Records(std::vector<SlurmRecord> records, const std::string& user) {
    std::erase_if(records, [&](const SlurmRecord& record) { return record.user != user; });
    records_ = std::move(records);
    for (const SlurmRecord& record : records_) {
      by_id_[record.id] = &record;
      by_name_[record.name].push_back(&record);
    }
  }
  Records(Records&&) = default;
  Records& operator=(Records&&) = default;

  // The job of that id if it has that name; elements that still stand together count too.
  const SlurmRecord* find(const std::string& id, const std::string& name) const {
    const auto exact = by_id_.find(id);
    if (exact != by_id_.end()) return exact->second->name == name ? exact->second : nullptr;
    const auto named = by_name_.find(name);
    if (named == by_name_.end() || id.find('_') == std::string::npos) return nullptr;
    for (const SlurmRecord* record : named->second) {
      if (record->id.starts_with(array_of(id) + "_[")) return record;
    }
    return nullptr;
  }

  // All of the first of this name that may be the job: a script that a person started again has it
  // too.
  std::vector<const SlurmRecord*> named(const OpenJob& job) const {
    const auto found = by_name_.find(job.name);
    if (found == by_name_.end()) return {};
    std::vector<const SlurmRecord*> records = found->second;
    std::erase_if(records, [&](const SlurmRecord* record) { return is_older(*record, job); });
    if (records.empty()) return {};
    const auto first = std::ranges::min_element(records, {}, [](const SlurmRecord* record) {
      return std::pair(record->submit_s.value_or(0), std::stoll(array_of(record->id)));
    });
    std::vector<const SlurmRecord*> all;
    for (const SlurmRecord* record : records) {
      if (array_of(record->id) == array_of((*first)->id)) all.push_back(record);
    }
    return all;
  }

 private:
  std::vector<SlurmRecord> records_;
  std::map<std::string, const SlurmRecord*> by_id_;
  std::map<std::string, std::vector<const SlurmRecord*>> by_name_;
};

// Of an array that was looked up by its name: ended once all its elements are.
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

bool output_says_over_memory(const std::vector<fs::path>& outputs) {
  constexpr std::streamoff kTail = 16384;
  return std::ranges::any_of(outputs, [](const fs::path& path) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) return false;
    file.seekg(std::max<std::streamoff>(0, file.tellg() - std::streampos(kTail)));
    return says_over_memory(std::string(std::istreambuf_iterator<char>(file), {}));
  });
}

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
    for (const auto& [path, text] : files) {
      if (fs::exists(path))
        throw Error(ExitCode::conflict, path.string(), "this attempt is there already");
    }
    for (const RunStart& run : job.runs) make_directories(run.run_dir);
    for (const auto& [path, text] : files) write_file_atomically(path, text);
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
    CommandOptions how = command_options();
    how.input = script(job);
    const CommandResult result = run_command({"sbatch", "--test-only"}, how);
    const std::string said = slurm_complaint(result);
    if (result.exit_code == 0 && !result.timed_out) return said;
    switch (slurm_fault(result)) {
      case SlurmFault::unreachable:
      case SlurmFault::lost:
      case SlurmFault::busy:
        unreachable("sbatch --test-only", result);
      case SlurmFault::refused:
      case SlurmFault::no_accounting:
        break;
    }
    throw Error(ExitCode::refused, job.name,
                fmt::format("the cluster would not take it: {}", said));
  }

  std::vector<JobState> query(std::span<const OpenJob> jobs) override {
    if (jobs.empty()) return {};
    const Records queue = ask_queue();
    Accounts accounts;
    std::vector<std::vector<Seen>> seen;
    bool is_missing = false;
    bool is_vague = false;
    for (const OpenJob& job : jobs) {
      seen.push_back(look_up(job, queue, accounts.records));
      is_missing = is_missing || seen.back().empty();
      is_vague = is_vague || (std::ranges::any_of(seen.back(), is_vague_in_queue) && !noted(job));
    }
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
    if (result.exit_code != 0 || result.timed_out) unreachable("scontrol", result);
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
    Records records;
    bool are_kept = false;  // by this cluster, answered or not
  };

  // The queue has no exit codes.
  static bool is_vague_in_queue(const Seen& seen) {
    return seen.queue != nullptr && seen.queue->state == "FAILED" &&
           seen.queue->reason != "BadConstraints";
  }

  CommandOptions command_options() const {
    return {.environment = slurm_environment(),
            .limit_s = options_.command_limit_s,
            .dies_with_caller = true};
  }

  CommandResult run(const std::vector<std::string>& words) const {
    return run_command(words, command_options());
  }

  std::string script(const Job& job) const {
    return slurm_script(cluster_, job,
                        {.trainer = options_.trainer, .bin = uncommon_folder("srun")});
  }

  static void remove(const std::map<fs::path, std::string>& files) {
    for (const auto& [path, text] : files) {
      std::error_code ignored;
      fs::remove(path, ignored);
    }
  }

  Records ask_queue() const {
    const CommandResult result =
        run({"squeue", "--noheader", "--array", "--states=all", "--user=" + user_,
             fmt::format("--format={}", kSqueueFormat)});
    if (result.exit_code != 0 || result.timed_out) unreachable("squeue", result);
    return {parse_squeue(result.out), user_};
  }

  // Nobody can say that a job is not there if they do not answer: Error(unreachable) if that is
  // asked.
  Accounts ask_accounts(std::span<const OpenJob> jobs, bool is_missing) const {
    const CommandResult result =
        run({"sacct", "--noheader", "--allocations", "--parsable2", "--user=" + user_,
             "--starttime=" + search_from(jobs), fmt::format("--format={}", kSacctFormat)});
    if (result.exit_code == 0 && !result.timed_out)
      return {.records = {parse_sacct(result.out), user_}, .are_kept = true};
    if (slurm_fault(result) == SlurmFault::no_accounting) return {};
    if (is_missing) unreachable("sacct", result);
    return {.are_kept = true};
  }

  static std::vector<Seen> look_up(const OpenJob& job, const Records& queue,
                                   const Records& accounts) {
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

  JobState state_of(const OpenJob& job, const std::vector<Seen>& seen, bool accounts_are_kept) {
    if (seen.empty()) return {};
    std::vector<JobState> each;
    for (const Seen& one : seen) {
      JobState state = slurm_state(one.queue, one.accounts);
      const bool accounts_know = one.accounts != nullptr &&
                                 slurm_state(nullptr, one.accounts).phase == JobState::Phase::ended;
      if (one.queue == nullptr && !accounts_know && !is_awaited(state.job)) {
        state = {.phase = JobState::Phase::ended,
                 .job = state.job,
                 .end = Status::unknown,
                 .end_reason = "gone from the queue, and the accounts have no end of it"};
      }
      if (is_vague_in_queue(one) && accounts_are_kept && !accounts_know && !noted(job) &&
          is_awaited(state.job)) {
        state = {.phase = JobState::Phase::running,
                 .job = state.job,
                 .reason = "has failed; how, the accounts do not know yet"};
      }
      each.push_back(std::move(state));
    }
    JobState state = job.job.empty() ? together(each) : each.front();
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

  void cancel_some(const std::vector<std::string>& words) const {
    const CommandResult result = run(words);
    if (result.exit_code == 0 && !result.timed_out) return;
    // Of several some may have ended meanwhile: that is no fault.
    const std::string said = slurm_complaint(result);
    if (!result.timed_out && slurm_fault(result) == SlurmFault::refused) {
      if (said.find("already completing or completed") != std::string::npos ||
          said.find("Invalid job id specified") != std::string::npos)
        return;
      throw Error(ExitCode::refused, "scancel", said);
    }
    unreachable("scancel", result);
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
