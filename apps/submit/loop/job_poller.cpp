// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/loop/job_poller.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/ledger/state.h"

namespace tessera::submit {

using cluster::JobState;

namespace {

constexpr double kLongestPollFactor = 6;
constexpr double kPollGrowth = 1.5;

}  // namespace

void JobPoller::poll_if_due() {
  const double now = monotonic_seconds();
  // A footer is there before its job's end is known to the cluster: the next question comes
  // sooner.
  const double look_every_s = std::max(kSlice_s, state_.scheduler.poll_s() / 3);
  if (state_.scheduler.queues() && now < next_poll_s_ && now >= last_look_s_ + look_every_s) {
    last_look_s_ = now;
    if (new_footer())
      next_poll_s_ = std::min(next_poll_s_, last_poll_s_ + state_.scheduler.poll_s() / 3);
  }
  if (now < next_poll_s_) return;
  bool changed = false;
  try {
    changed = poll();
  } catch (const Error& error) {
    if (error.code() != ExitCode::unreachable) {
      if (!state_.fault) state_.fault = std::current_exception();
      if (state_.scheduler.queues()) return;
    } else if (!state_.silent) {
      state_.silent = true;
      state_.note(
          fmt::format("{} does not answer: {}; asking again", state_.cluster_name(), error.what()));
    }
  }
  last_poll_s_ = monotonic_seconds();
  poll_factor_ = changed || !state_.scheduler.queues()
                     ? 1
                     : std::min(poll_factor_ * kPollGrowth, kLongestPollFactor);
  const double wait_s = state_.scheduler.poll_s() * poll_factor_;
  next_poll_s_ = last_poll_s_ + (state_.scheduler.queues() ? wait_s * jitter() : wait_s);
}

bool JobPoller::new_footer() {
  bool found = false;
  for (const jobs::LiveJob& live : state_.live) {
    if (!running_.contains(live.job.job)) continue;
    for (const cluster::OpenRun& run : live.job.runs) {
      const std::string key = fmt::format("{}.{}", run.run, run.attempt);
      if (footers_.contains(key) || !cluster::has_footer(run.run_dir, run.attempt)) continue;
      footers_.insert(key);
      found = true;
    }
  }
  return found;
}

bool JobPoller::poll() {
  std::vector<cluster::OpenJob> jobs;
  for (const jobs::LiveJob& live : state_.live) jobs.push_back(live.job);
  const std::vector<JobState> states = state_.scheduler.query(jobs);
  if (state_.silent) state_.note(fmt::format("{} answers again", state_.cluster_name()));
  state_.silent = false;
  std::optional<std::map<std::string, ledger::RunState>> known;
  const auto is_cancelled = [&](const ledger::RunRef& ref) {
    if (!known) known = ledger::run_states(ledger::read_ledger(state_.project_dir));
    return jobs::cancelled_in(*known)(ref);
  };
  state_.progress.pending = 0;
  state_.progress.running.clear();
  bool changed = false;
  std::vector<jobs::LiveJob> rest;
  for (std::size_t i = 0; i < state_.live.size(); ++i) {
    const JobState& state = states[i];
    const jobs::Resolved resolved =
        jobs::resolve(state_.live[i], state, jobs::Reply::may_come, is_cancelled);
    for (const ledger::Entry& entry : resolved.adopted) state_.append_or_keep(entry);
    for (const jobs::Ended& ended : resolved.ended) state_.take(ended);
    changed = changed || !resolved.ended.empty() || !resolved.adopted.empty();
    for (const jobs::LiveJob& live : resolved.rest) {
      show_state(live, state);
      rest.push_back(live);
    }
  }
  state_.live = std::move(rest);
  return changed;
}

void JobPoller::show_state(const jobs::LiveJob& live, const JobState& state) {
  if (state.phase == JobState::Phase::pending) {
    state_.progress.pending += static_cast<int>(live.refs.size());
  } else {
    state_.progress.running.push_back(live.refs.front().run);
    running_.insert(live.job.job);
  }
  // A hold may be released.
  if (!state.never_starts && state_.stuck.erase(live.job.job) > 0)
    state_.report.never_start -= static_cast<int>(live.refs.size());
  if (state.never_starts && state_.stuck.insert(live.job.job).second) {
    state_.report.never_start += static_cast<int>(live.refs.size());
    if (state_.events.never_starts) state_.events.never_starts(live.job.name, state.reason);
  }
}

}  // namespace tessera::submit
