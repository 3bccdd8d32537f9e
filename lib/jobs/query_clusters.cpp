// SPDX-License-Identifier: Apache-2.0
#include "lib/jobs/query_clusters.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/process.h"

namespace tessera::jobs {

namespace fs = std::filesystem;
using runlog::Status;

namespace {

OpenState open_status(const LiveJob& live, const cluster::JobState& state) {
  using Phase = cluster::JobState::Phase;
  OpenState status;
  status.cluster = live.cluster;
  status.job = state.job.empty() ? live.job.job : state.job;
  switch (state.phase) {
    case Phase::pending:
      status.status = Status::pending;
      status.reason = state.reason;
      if (state.never_starts) status.reason += ": it will never start";
      break;
    case Phase::elsewhere:
      status.status = Status::unknown;
      status.reason = fmt::format("runs on {}, which cannot be asked from here", state.reason);
      break;
    case Phase::absent:
      status.status = Status::unknown;
      status.reason = "handed over without an answer; the next submit looks for it";
      break;
    case Phase::running:
    case Phase::ended:
      status.status = Status::running;
      status.reason = state.reason;
      break;
  }
  return status;
}

}  // namespace

ClusterAnswers query_clusters(const fs::path& project_dir,
                              const std::map<std::string, ledger::RunState>& states,
                              Schedulers& schedulers, bool ask) {
  ClusterAnswers result;
  std::set<std::pair<std::string, std::string>> users_of;  // cluster, user
  for (const auto& [run, state] : states) {
    for (const ledger::AttemptState& attempt : state.attempts) {
      if (attempt.last != ledger::Op::final) users_of.insert({attempt.cluster, attempt.user});
    }
  }
  const IsCancelled is_cancelled = cancelled_in(states);
  for (const auto& [name, user] : users_of) {
    std::vector<LiveJob> jobs = live_jobs(project_dir, states, user, name);
    const auto all_unknown = [&](const std::string& why) {
      for (const LiveJob& live : jobs) {
        for (const ledger::RunRef& ref : live.refs) {
          OpenState& status = result.open[ref.run];
          status.cluster = live.cluster;
          status.job = live.job.job;
          status.status = Status::unknown;
          status.reason = why;
        }
      }
    };
    cluster::Scheduler* scheduler = schedulers.find(name);
    if (scheduler == nullptr) {
      all_unknown("its cluster cannot be asked");
      result.silent.push_back(fmt::format("{}: {}", name, schedulers.why_not(name)));
      continue;
    }
    if (scheduler->queues() && user != user_name()) {
      all_unknown(fmt::format("{}'s job", user));
      continue;
    }
    if (scheduler->queues() && !ask) {
      all_unknown("its cluster was not asked");
      continue;
    }
    std::vector<cluster::OpenJob> open;
    for (const LiveJob& live : jobs) open.push_back(live.job);
    std::vector<cluster::JobState> answers;
    try {
      answers = scheduler->query(open);
    } catch (const Error& error) {
      if (error.code() != ExitCode::unreachable) throw;
      all_unknown("its cluster does not answer");
      result.silent.push_back(fmt::format("{}: {}", name, error.what()));
      continue;
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      // What starts at once and is not there has never begun.
      const Reply reply = scheduler->queues() ? Reply::may_come : Reply::is_lost;
      const Resolved resolved = resolve(jobs[i], answers[i], reply, is_cancelled);
      for (const Ended& ended : resolved.ended) {
        result.finals.push_back(ended.entry);
        result.finals.back().user = user;
      }
      for (const LiveJob& live : resolved.rest) {
        for (const ledger::RunRef& ref : live.refs)
          result.open[ref.run] = open_status(live, answers[i]);
        const bool there = answers[i].phase == cluster::JobState::Phase::pending ||
                           answers[i].phase == cluster::JobState::Phase::running;
        if (there) result.live.push_back(live);
      }
    }
  }
  return result;
}

}  // namespace tessera::jobs
