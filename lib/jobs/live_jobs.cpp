// SPDX-License-Identifier: Apache-2.0
#include "lib/jobs/live_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "lib/cluster/outcome.h"
#include "lib/cluster/run_files.h"
#include "lib/point/identity.h"

namespace tessera::jobs {

namespace fs = std::filesystem;
using cluster::JobState;
using runlog::Status;

namespace {

// An attempt and the run that it belongs to.
struct Member {
  const ledger::RunState* run;
  const ledger::AttemptState* attempt;
};

// Returns an entry of one run about a job.
ledger::Entry entry_of(ledger::Op op, const LiveJob& live, const ledger::RunRef& ref,
                       const std::string& job) {
  ledger::Entry entry;
  entry.op = op;
  entry.cluster = live.cluster;
  entry.job = job;
  entry.runs = {ref};
  return entry;
}

// Returns the entry that says how a run ended.
ledger::Entry final_entry(const LiveJob& live, const ledger::RunRef& ref, const JobState& state,
                          const cluster::Outcome& outcome) {
  ledger::Entry entry = entry_of(ledger::Op::final, live, ref, live.job.job);
  entry.status = outcome.status;
  entry.ended_by = outcome.ended_by;
  entry.reason = outcome.reason;
  entry.queue_s = state.queue_s;
  entry.build = outcome.build;
  return entry;
}

// How a run of an ended job ended.
cluster::Outcome outcome_of(const LiveJob& live, std::size_t index, const JobState& state) {
  const cluster::OpenRun& run = live.job.runs[index];
  const bool alone = live.refs.size() == 1;
  const bool has_log = cluster::has_log(run.run_dir, run.attempt);
  // A run among several that left nothing never had its turn.
  if (!has_log && !cluster::noted_exit_code(run.run_dir, run.attempt) && !alone) {
    return {Status::missing,
            state.end ? fmt::format("its allocation ended before its turn: {}", state.end_reason)
                      : "its allocation ended before its turn"};
  }
  // The exit code of a job is a run's own only if it is the job's only run.
  cluster::End end{.exit_code = alone ? state.exit_code : std::nullopt,
                   .status = state.end,
                   .reason = state.end_reason};
  return cluster::outcome_of_attempt(run.run_dir, run.attempt, end);
}

// Adds the end of a run. If a person cancelled the run, the outcome is changed to say so.
void finish(const LiveJob& live, std::size_t index, const JobState& state,
            const IsCancelled& is_cancelled, cluster::Outcome outcome, Resolved& result) {
  const ledger::RunRef& ref = live.refs[index];
  const bool may_be = outcome.status == Status::partial || outcome.status == Status::failed ||
                      outcome.status == Status::missing;
  if (may_be && is_cancelled(ref)) outcome = cluster::outcome_of_cancelled(outcome);
  ledger::Entry entry = final_entry(live, ref, state, outcome);
  result.ended.push_back({std::move(entry), std::move(outcome)});
}

// Returns whether the log of the attempt has a footer that says ok.
bool has_ended_ok(const cluster::OpenRun& run) {
  return cluster::has_result(run.run_dir, run.attempt, Status::ok);
}

// Adds the runs that have ended of a job that is pending or running.
void resolve_open(const LiveJob& live, const JobState& state, const IsCancelled& is_cancelled,
                  Resolved& result) {
  LiveJob rest = live;
  rest.job.runs.clear();
  rest.refs.clear();
  rest.indices.clear();
  for (std::size_t i = 0; i < live.refs.size(); ++i) {
    const cluster::OpenRun& run = live.job.runs[i];
    // The last run's footer comes before its job's end, which tells more: it is waited for.
    const bool last = i + 1 == live.refs.size();
    if (state.phase == JobState::Phase::running && !last && has_ended_ok(run)) {
      finish(live, i, state, is_cancelled,
             cluster::outcome_of_attempt(run.run_dir, run.attempt, {}), result);
      continue;
    }
    rest.job.runs.push_back(run);
    rest.refs.push_back(live.refs[i]);
    rest.indices.push_back(live.indices[i]);
  }
  if (!rest.refs.empty()) result.rest.push_back(std::move(rest));
}

// Only a footer tells.
void resolve_elsewhere(const LiveJob& live, const IsCancelled& is_cancelled, Resolved& result) {
  const bool all_told = std::ranges::all_of(live.job.runs, [](const cluster::OpenRun& run) {
    return cluster::has_footer(run.run_dir, run.attempt);
  });
  if (!all_told) {
    result.rest.push_back(live);
    result.rest.back().elsewhere = true;
    return;
  }
  for (std::size_t i = 0; i < live.refs.size(); ++i) {
    const cluster::OpenRun& run = live.job.runs[i];
    finish(live, i, {}, is_cancelled, cluster::outcome_of_attempt(run.run_dir, run.attempt, {}),
           result);
  }
}

// Applies the cluster's answer to all runs of the job, phase by phase.
void resolve_known(const LiveJob& live, const JobState& state, const IsCancelled& is_cancelled,
                   Resolved& result) {
  switch (state.phase) {
    case JobState::Phase::pending:
    case JobState::Phase::running:
      return resolve_open(live, state, is_cancelled, result);
    case JobState::Phase::elsewhere:
      return resolve_elsewhere(live, is_cancelled, result);
    case JobState::Phase::ended:
      for (std::size_t i = 0; i < live.refs.size(); ++i)
        finish(live, i, state, is_cancelled, outcome_of(live, i, state), result);
      return;
    case JobState::Phase::absent:
      break;
  }
  // The cluster knows the job no more: only what the runs left behind can tell.
  for (std::size_t i = 0; i < live.refs.size(); ++i) {
    const cluster::OpenRun& run = live.job.runs[i];
    cluster::Outcome outcome{
        Status::unknown,
        fmt::format("job {} is in neither queue nor accounts, and it left no result",
                    live.job.job)};
    const bool told = cluster::has_footer(run.run_dir, run.attempt) ||
                      cluster::noted_exit_code(run.run_dir, run.attempt);
    if (told) outcome = cluster::outcome_of_attempt(run.run_dir, run.attempt, {});
    finish(live, i, state, is_cancelled, outcome, result);
  }
}

}  // namespace

std::vector<LiveJob> confirmed(const LiveJob& live, const std::string& id) {
  if (!live.array) {
    LiveJob known = live;
    known.job.job = id;
    known.confirmed = true;
    return {known};
  }
  std::vector<LiveJob> elements;
  for (std::size_t i = 0; i < live.refs.size(); ++i) {
    LiveJob& element = elements.emplace_back(live);
    element.job.job = cluster::element_id(id, live.indices[i]);
    element.job.runs = {live.job.runs[i]};
    element.refs = {live.refs[i]};
    element.indices = {live.indices[i]};
    element.confirmed = true;
  }
  return elements;
}

std::vector<LiveJob> live_jobs(const fs::path& project_dir,
                               const std::map<std::string, ledger::RunState>& states,
                               const std::string& user, const std::string& cluster) {
  // By when, cluster and job; a job's runs in their order. Of one millisecond the smaller id is the
  // older one.
  using Key = std::tuple<std::string, std::string, std::size_t, std::string, std::string>;
  std::map<Key, std::vector<Member>> jobs;
  for (const auto& [run, state] : states) {
    for (const ledger::AttemptState& attempt : state.attempts) {
      if (attempt.last == ledger::Op::final || attempt.user != user) continue;
      if (!cluster.empty() && attempt.cluster != cluster) continue;
      const std::string name =
          attempt.name.empty() ? sweep::job_name(run, attempt.attempt) : attempt.name;
      const std::string job = attempt.confirmed ? attempt.job : "";
      jobs[{attempt.since_utc, attempt.cluster, job.size(), job, name}].push_back(
          {&state, &attempt});
    }
  }
  // Each key is one job. Its runs are sorted by their place in it.
  std::vector<LiveJob> result;
  for (auto& [key, members] : jobs) {
    const auto& [since_utc, of_cluster, digits, job, name] = key;
    std::ranges::sort(members, {}, [](const Member& member) { return member.attempt->index; });
    LiveJob& live = result.emplace_back();
    live.cluster = of_cluster;
    live.job = {.job = job, .name = name, .since_utc = since_utc};
    live.confirmed = members.front().attempt->confirmed;
    live.array = members.front().attempt->array;
    live.job.host = members.front().attempt->host;
    for (const Member& member : members) {
      ledger::RunRef ref = member.run->ref;
      ref.attempt = member.attempt->attempt;
      live.job.runs.push_back(
          {.run = ref.run, .attempt = ref.attempt, .run_dir = project_dir / ref.run});
      live.refs.push_back(std::move(ref));
      live.indices.push_back(member.attempt->index);
    }
  }
  return result;
}

Resolved resolve(const LiveJob& live, const JobState& state, Reply reply,
                 const IsCancelled& is_cancelled) {
  Resolved result;
  if (live.confirmed || state.phase == JobState::Phase::elsewhere) {
    resolve_known(live, state, is_cancelled, result);
    return result;
  }
  // The cluster has the job, and the ledger lacks its reply: adopt it.
  if (state.phase != JobState::Phase::absent) {
    // An array has several states: only its id is taken from this one.
    for (const LiveJob& job : confirmed(live, state.job)) {
      ledger::Entry entry = entry_of(ledger::Op::adopted, job, job.refs.front(), job.job.job);
      entry.runs = job.refs;
      result.adopted.push_back(std::move(entry));
      if (live.array) {
        result.rest.push_back(job);
      } else {
        resolve_known(job, state, is_cancelled, result);
      }
    }
    return result;
  }
  // What left a log or an exit code has run, whoever may know it.
  const auto left_traces = [](const cluster::OpenRun& run) {
    return cluster::has_log(run.run_dir, run.attempt) ||
           cluster::noted_exit_code(run.run_dir, run.attempt).has_value();
  };
  const bool has_run = std::ranges::any_of(live.job.runs, left_traces);
  // The cluster may still get it: it stays open.
  if (reply == Reply::may_come && !has_run) {
    result.rest.push_back(live);
    return result;
  }
  // It will not come any more, or a run left traces. Runs without traces may be started again.
  for (std::size_t i = 0; i < live.refs.size(); ++i) {
    const cluster::OpenRun& run = live.job.runs[i];
    const cluster::Outcome outcome =
        left_traces(run)
            ? cluster::outcome_of_attempt(run.run_dir, run.attempt, {})
            : cluster::Outcome{Status::missing, "its submitter ended before it was handed over"};
    finish(live, i, state, is_cancelled, outcome, result);
  }
  return result;
}

IsCancelled cancelled_in(const std::map<std::string, ledger::RunState>& states) {
  return [&states](const ledger::RunRef& ref) {
    const auto found = states.find(ref.run);
    return found != states.end() &&
           std::ranges::any_of(found->second.attempts, [&](const ledger::AttemptState& attempt) {
             return attempt.attempt == ref.attempt && attempt.cancelled;
           });
  };
}

std::vector<ledger::Entry> lost_results(const fs::path& project_dir,
                                        const std::map<std::string, ledger::RunState>& states) {
  std::vector<ledger::Entry> entries;
  for (const auto& [run, state] : states) {
    for (const ledger::AttemptState& attempt : state.attempts) {
      const bool ok = attempt.last == ledger::Op::final && attempt.status == Status::ok;
      if (!ok || cluster::has_result(project_dir / run, attempt.attempt, Status::ok)) continue;
      ledger::Entry& entry = entries.emplace_back();
      entry.op = ledger::Op::final;
      entry.cluster = attempt.cluster;
      entry.job = attempt.job;
      entry.runs = {state.ref};
      entry.runs.front().attempt = attempt.attempt;
      entry.status = Status::missing;
      entry.reason = "it ended ok, but its log is gone or damaged";
    }
  }
  return entries;
}

}  // namespace tessera::jobs
