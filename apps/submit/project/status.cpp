// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/project/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <thread>

#include "apps/submit/loop/select.h"
#include "lib/base/error.h"
#include "lib/base/process.h"
#include "lib/jobs/live_jobs.h"
#include "lib/jobs/query_clusters.h"
#include "lib/jobs/run_lookup.h"
#include "lib/ledger/ledger.h"
#include "lib/ledger/lock.h"

namespace tessera::submit {

namespace fs = std::filesystem;
using runlog::Status;

namespace {

// Returns the project's ledger. Error(empty) if nothing was submitted.
ledger::Contents require_ledger(const fs::path& project_dir) {
  ledger::Contents contents = ledger::read_ledger(project_dir);
  if (contents.entries.empty() && contents.damage.empty()) {
    throw Error(ExitCode::empty, project_dir.string(), "nothing was submitted here",
                jobs::kWhereIsIt);
  }
  return contents;
}

// Throws Error(empty) that suggests the nearest name of a run.
[[noreturn]] void throw_unknown_run(const std::string& run, const fs::path& project_dir,
                                    const std::map<std::string, ledger::RunState>& states) {
  std::vector<std::string> known;
  for (const auto& [name, state] : states) known.push_back(name);
  // Names that nothing is near to are too long to be listed in a line.
  throw Error(ExitCode::empty, run, "no run of this project that was started",
              did_you_mean(run, known)
                  .value_or(fmt::format("submit status {} --all lists its runs",
                                        project_dir.filename().string())));
}

// What a submit at work handed over to a queue after it was asked which jobs there are: told once
// it has let go of the project.
void cancel_late(const fs::path& project_dir, jobs::Schedulers& schedulers, ledger::Ledger& ledger,
                 const std::vector<jobs::LiveJob>& told, Cancellation& result) {
  constexpr int kTries = 200;
  constexpr auto kPause = std::chrono::milliseconds(50);
  for (int tries = 0; tries < kTries; ++tries) {
    const auto holder = ledger::lock_holder(project_dir);
    if (!holder || liveness(holder->process) != Liveness::alive) break;
    std::this_thread::sleep_for(kPause);
  }
  const auto states = ledger::run_states(ledger::read_ledger(project_dir));
  const jobs::ClusterAnswers asked = jobs::query_clusters(project_dir, states, schedulers, true);
  for (const jobs::LiveJob& live : asked.live) {
    const bool is_told = std::ranges::any_of(told, [&](const jobs::LiveJob& other) {
      return other.job.name == live.job.name && other.refs == live.refs;
    });
    cluster::Scheduler* scheduler = schedulers.find(live.cluster);
    const bool mine = states.at(live.refs.front().run).attempts.back().user == user_name();
    if (is_told || !mine || scheduler == nullptr || !scheduler->queues()) continue;
    ledger::Entry entry;
    entry.op = ledger::Op::cancel;
    entry.cluster = live.cluster;
    entry.runs = live.refs;
    ledger.append(entry);
    for (const ledger::RunRef& ref : live.refs) result.runs.push_back(ref.run);
    scheduler->cancel({&live.job, 1});
  }
}

}  // namespace

ProjectStatus project_status(const fs::path& project_dir, jobs::Schedulers& schedulers, bool ask) {
  ledger::Contents contents = require_ledger(project_dir);
  ProjectStatus result;
  for (const ledger::Damage& damage : contents.damage) {
    result.damage.push_back(fmt::format("{}: {}", damage.where, damage.what));
  }
  const auto before = ledger::run_states(contents);
  jobs::ClusterAnswers asked = jobs::query_clusters(project_dir, before, schedulers, ask);
  result.silent = std::move(asked.silent);
  // The ends found just now were not written by anyone yet.
  const auto append = [&](std::vector<ledger::Entry> entries) {
    contents.entries.insert(contents.entries.end(), entries.begin(), entries.end());
  };
  append(asked.finals);
  append(jobs::lost_results(project_dir, before));
  const auto states = ledger::run_states(contents);

  // Every planned run has a line, in the order of the plans.
  std::vector<std::string> order;
  std::map<std::string, RunStatus> by_run;
  for (const ledger::Entry& entry : contents.entries) {
    result.dropped += entry.dropped.size();
    for (const ledger::PlannedPoint& point : entry.points) {
      for (int repeat = 1; repeat <= point.repeats; ++repeat) {
        const std::string run = repeat == 1 ? point.run : fmt::format("{}-r{}", point.run, repeat);
        if (!by_run.contains(run)) order.push_back(run);
        by_run[run].run = run;
        by_run[run].label = point.label;
      }
    }
  }
  for (const std::string& run : order) {
    RunStatus status = by_run.at(run);
    // A run without an attempt stays `missing`.
    const auto found = states.find(run);
    if (found != states.end()) {
      const ledger::RunState& state = found->second;
      // An attempt that has not ended decides; if there is none, the one that speaks for the run.
      const auto open = std::ranges::find_if(
          state.attempts, [](const auto& a) { return a.last != ledger::Op::final; });
      const ledger::AttemptState& attempt =
          open != state.attempts.end() ? *open : *deciding_attempt(state);
      if (open != state.attempts.end()) {
        if (const auto known = asked.open.find(run); known != asked.open.end()) {
          status.status = known->second.status;
          status.reason = known->second.reason;
          status.job = known->second.job;
        } else {
          status.status = Status::unknown;
        }
      } else {
        status.status = attempt.status.value_or(Status::unknown);
        status.reason = attempt.reason;
      }
      status.attempt = attempt.attempt;
      status.user = attempt.user;
      status.cluster = attempt.cluster;
    }
    result.runs.push_back(std::move(status));
  }
  return result;
}

Cancellation cancel_runs(const fs::path& project_dir, jobs::Schedulers& schedulers,
                         const std::vector<std::string>& runs) {
  const ledger::Contents contents = require_ledger(project_dir);
  const auto states = ledger::run_states(contents);
  for (const std::string& run : runs) {
    if (!states.contains(run)) throw_unknown_run(run, project_dir, states);
  }
  const auto asked_for = [&](const std::string& run) {
    return runs.empty() || std::ranges::find(runs, run) != runs.end();
  };
  const std::string user = user_name();
  const jobs::ClusterAnswers asked = jobs::query_clusters(project_dir, states, schedulers, true);
  // Refuse what cannot be cancelled before anything is told to end.
  for (const std::string& run : runs) {
    const auto open = asked.open.find(run);
    if (open == asked.open.end()) continue;
    const std::string& owner = states.at(run).attempts.back().user;
    if (owner != user)
      throw Error(ExitCode::refused, run, fmt::format("is {}'s run", owner),
                  "only its user can cancel it");
    if (open->second.status == Status::unknown)
      throw Error(ExitCode::refused, run, open->second.reason, "cancel it there");
  }
  if (!asked.silent.empty())
    throw Error(ExitCode::unreachable, "", asked.silent.front(), "nothing was cancelled");
  // A job ends as a whole, so all its open runs must be named.
  std::vector<jobs::LiveJob> to_tell;
  for (const jobs::LiveJob& live : asked.live) {
    const bool mine = states.at(live.refs.front().run).attempts.back().user == user;
    const auto named = std::ranges::count_if(
        live.refs, [&](const ledger::RunRef& ref) { return asked_for(ref.run); });
    if (!mine || named == 0) continue;
    if (named != std::ssize(live.refs)) {
      const auto one = std::ranges::find_if(
          live.refs, [&](const ledger::RunRef& ref) { return asked_for(ref.run); });
      throw Error(ExitCode::refused, one->run,
                  fmt::format("its job {} holds {} runs that have not ended, not all of them named",
                              live.job.job, live.refs.size()),
                  "name all of them, or cancel the project");
    }
    to_tell.push_back(live);
  }
  // A submit at work would start more runs. Only this user's own can be told to stop.
  Cancellation result;
  const auto holder = ledger::lock_holder(project_dir);
  if (runs.empty() && holder) {
    if (holder->user == user && liveness(holder->process) == Liveness::alive) {
      result.submit = holder->process.pid;
    } else {
      result.submit_not_told =
          fmt::format("{} on {}, pid {}", holder->user, holder->process.host, holder->process.pid);
    }
  }
  // A submit that works on the project has mended the ledger's end already and goes on appending;
  // else it is mended now.
  std::optional<ledger::ProjectLock> lock;
  try {
    if (!holder) lock.emplace(project_dir, user);
  } catch (const Error& error) {
    if (error.code() != ExitCode::locked) throw;
  }
  ledger::Ledger ledger(project_dir, user, host_name(),
                        lock ? ledger::Tail::mend : ledger::Tail::trust);
  // The ledger has the cancel before any signal is sent.
  for (const jobs::LiveJob& live : to_tell) {
    ledger::Entry entry;
    entry.op = ledger::Op::cancel;
    entry.cluster = live.cluster;
    entry.runs = live.refs;
    ledger.append(entry);
  }
  // The submit hands the signal on to the runs of this machine: a second one would end them without
  // a footer.
  if (result.submit != 0 && ::kill(result.submit, SIGTERM) != 0) result.submit = 0;
  std::map<std::string, std::vector<cluster::OpenJob>> by_cluster;
  for (const jobs::LiveJob& live : to_tell) {
    for (const ledger::RunRef& ref : live.refs) result.runs.push_back(ref.run);
    const bool told = result.submit != 0 && !schedulers.find(live.cluster)->queues();
    if (!told) by_cluster[live.cluster].push_back(live.job);
  }
  for (const auto& [name, jobs] : by_cluster) schedulers.find(name)->cancel(jobs);
  if (result.submit != 0) cancel_late(project_dir, schedulers, ledger, to_tell, result);
  return result;
}

}  // namespace tessera::submit
