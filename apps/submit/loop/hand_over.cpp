// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/loop/hand_over.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/submit/loop/build_jobs.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/process.h"
#include "lib/jobs/resolve_jobs.h"
#include "lib/ledger/state.h"

namespace tessera::submit {

using cluster::Submission;

namespace {

constexpr int kBusyTries = 6;  // 1 + 2 + 4 + 8 + 16 + 32 s

// A cluster that is asked often in tests is tried again as quickly.
double busy_unit_s(const cluster::Scheduler& scheduler) {
  return std::min(1.0, scheduler.poll_s());
}

}  // namespace

HandOver::HandOver(SubmitState& state, std::deque<WaitingJob> waiting)
    : state_(state), waiting_(std::move(waiting)) {
  // What was handed over before counts among what is in flight.
  for (const jobs::LiveJob& live : state_.live) chain_.push_back(live.job.job);
}

int HandOver::runs_waiting() const {
  int runs = 0;
  for (const WaitingJob& job : waiting_) runs += static_cast<int>(job.refs.size());
  return runs;
}

// Returns the job that must end before the next one begins, so that at most in_flight jobs run at
// once. Empty if there is no such limit or if this submit stays and waits itself.
std::vector<std::string> HandOver::runs_before() const {
  const auto most = static_cast<std::size_t>(state_.options.in_flight);
  if (state_.stays || most == 0 || chain_.size() < most) return {};
  return {chain_[chain_.size() - most]};
}

// Returns the other runs on this machine; nothing if the cluster has a queue.
std::optional<Company> HandOver::company() const {
  if (state_.scheduler.queues()) return std::nullopt;
  const int now = static_cast<int>(state_.live.size());
  const int rest = runs_waiting() - 1;
  const int most = std::min(state_.options.in_flight - 1, now + rest);
  return Company{.running = now, .shared_with = std::max(now, most)};
}

bool HandOver::start_next() {
  WaitingJob& next = waiting_.front();
  // What has run out of memory since.
  std::erase_if(next.refs,
                [&](const ledger::RunRef& ref) { return state_.is_beyond_wall(ref.run); });
  if (next.refs.empty()) {
    waiting_.pop_front();
    return true;
  }
  cluster::Job job =
      build_job(state_.options.project, next.refs, next.shape, next.array, next.time_limit_s);
  job.after = runs_before();
  for (const ledger::RunRef& ref : next.refs) {
    job.runs.push_back(
        state_.preparation.start_of(ref, company(), in_job_of(job, next.refs.size())));
  }
  // Preparing may take time, for instance to measure the CPU's peak. So an interrupt is looked for.
  if (state_.interrupted) return false;

  jobs::LiveJob live;
  live.cluster = state_.cluster_name();
  live.job.name = job.name;
  live.job.host = host_name();
  live.job.since_utc = utc_now();
  live.array = job.array;
  live.refs = next.refs;
  for (std::size_t i = 0; i < job.runs.size(); ++i) {
    live.job.runs.push_back({job.runs[i].run, job.runs[i].attempt, job.runs[i].run_dir});
    live.indices.push_back(i);
  }
  // The ledger has the intent before the cluster has the job.
  ledger::Entry intent;
  intent.op = ledger::Op::intent;
  intent.cluster = state_.cluster_name();
  intent.name = job.name;
  intent.array = job.array;
  intent.runs = next.refs;
  const WaitingJob taken = std::move(next);
  waiting_.pop_front();
  state_.ledger.append(intent);
  return hand_over(job, live, taken);
}

// Hands the job over and acts on the answer. False: nothing more can be handed over now.
bool HandOver::hand_over(const cluster::Job& job, jobs::LiveJob& live, const WaitingJob& taken) {
  const auto count_started = [&] {
    state_.report.started += static_cast<int>(live.refs.size());
    ++state_.report.jobs;
    ++state_.progress.submitted;
    if (state_.options.rate_per_s > 0)
      not_before_s_ = monotonic_seconds() + 1 / state_.options.rate_per_s;
  };
  bool cluster_has_it = false;
  // Called as soon as the cluster has the job, so that the ledger knows its id.
  const auto accepted = [&](const std::string& id) {
    cluster_has_it = true;
    for (jobs::LiveJob& known : jobs::confirmed(live, id)) {
      ledger::Entry entry;
      entry.op = ledger::Op::accepted;
      entry.cluster = state_.cluster_name();
      entry.job = known.job.job;
      entry.runs = known.refs;
      state_.ledger.append(entry);
      chain_.push_back(known.job.job);
      state_.live.push_back(std::move(known));
    }
  };
  const std::size_t before = state_.live.size();
  for (int tries = 0;; ++tries) {
    Submission answer;
    try {
      answer = state_.scheduler.submit(job, accepted);
    } catch (const Error& error) {
      // A submit that stays asks again later. Any other ends with the error.
      const bool may_answer_later = error.code() == ExitCode::unreachable && state_.stays &&
                                    state_.scheduler.queues() && !cluster_has_it;
      if (!may_answer_later) {
        state_.live.resize(before);
        if (state_.scheduler.queues() && !cluster_has_it)
          give_back(live, runlog::Status::missing, "it could not be handed over");
        throw;
      }
      put_back(live, taken, fmt::format("{} did not answer", state_.cluster_name()));
      if (!state_.silent)
        state_.note(fmt::format("{} does not answer: {}; asking again", state_.cluster_name(),
                                error.what()));
      state_.silent = true;
      not_before_s_ = monotonic_seconds() + state_.scheduler.poll_s() * jitter();
      return false;
    } catch (...) {
      // On this machine nothing runs then. What a cluster has and the ledger could not take is
      // found by its name the next time.
      state_.live.resize(before);
      if (state_.scheduler.queues() && !cluster_has_it)
        give_back(live, runlog::Status::missing, "it could not be handed over");
      throw;
    }
    switch (answer.kind) {
      case Submission::Kind::accepted:
        count_started();
        return true;
      case Submission::Kind::refused:
        give_back(live, runlog::Status::missing,
                  fmt::format("{} refused it: {}", state_.cluster_name(), answer.text));
        state_.report.refused += static_cast<int>(live.refs.size());
        state_.note(fmt::format("{} refused {}: {}", state_.cluster_name(), job.name, answer.text));
        if (++refused_jobs_ >= state_.options.max_failures) state_.report.gave_up = true;
        return true;
      case Submission::Kind::busy:
        if (state_.stays && !state_.live.empty()) {
          // Room comes as jobs end.
          put_back(live, taken, fmt::format("{} was full", state_.cluster_name()));
          not_before_s_ = monotonic_seconds() + state_.scheduler.poll_s() * jitter();
          return false;
        }
        // Otherwise it tries again after 1, 2, 4, ... units, and gives up in the end.
        if (tries + 1 >= kBusyTries || state_.interrupted) {
          put_back(live, taken, fmt::format("{} was busy: {}", state_.cluster_name(), answer.text));
          state_.note(fmt::format("{} takes no more now: {}", state_.cluster_name(), answer.text));
          state_.report.gave_up = true;
          return true;
        }
        if (tries == 0)
          state_.note(fmt::format("{} is busy: {}", state_.cluster_name(), answer.text));
        state_.pause(std::exp2(tries) * busy_unit_s(state_.scheduler) * jitter());
        if (state_.interrupted) {
          put_back(live, taken, fmt::format("{} was busy: {}", state_.cluster_name(), answer.text));
          return false;
        }
        continue;
      case Submission::Kind::lost:
        state_.note(fmt::format("no answer for {} ({}): looking for it", job.name, answer.text));
        return look_up(live, taken, count_started);
    }
  }
}

// Looks for a job whose reply was lost. It has been found, has ended, is tried again as a new
// attempt or is given up: then true. False if it was interrupted.
bool HandOver::look_up(const jobs::LiveJob& live, const WaitingJob& taken,
                       const std::function<void()>& started) {
  const std::vector<jobs::LiveJob> found = jobs::resolve_jobs(
      {live}, state_.scheduler, [](const ledger::RunRef&) { return false; }, state_.interrupted,
      [&](const ledger::Entry& entry) { state_.ledger.append(entry); },
      [&](const jobs::Ended& ended) {
        // What the cluster never had is handed over again: no end to be shown.
        if (ended.outcome.status == runlog::Status::missing) {
          state_.ledger.append(ended.entry);
        } else {
          state_.take(ended);
        }
      },
      [&](const std::string& text) { state_.note(text); });
  if (!found.empty() && found.front().confirmed) {
    for (const jobs::LiveJob& job : found) {
      chain_.push_back(job.job.job);
      state_.live.push_back(job);
    }
    started();
    return true;
  }
  if (state_.interrupted) return false;
  // It has ended already, or the cluster never had it: the ledger says which.
  const auto states = ledger::run_states(ledger::read_ledger(state_.project_dir));
  const auto& attempts = states.at(live.refs.front().run).attempts;
  const bool had_it = std::ranges::any_of(attempts, [&](const ledger::AttemptState& attempt) {
    return attempt.attempt == live.refs.front().attempt && attempt.confirmed;
  });
  if (had_it) {
    started();
    return true;
  }
  if (taken.replies_lost + 1 >= state_.options.max_failures) {
    state_.report.gave_up = true;
    state_.report.not_started += static_cast<int>(live.refs.size());
    state_.note(fmt::format("{} never answers", state_.cluster_name()));
    return true;
  }
  again(taken, 1);
  return true;
}

void HandOver::again(const WaitingJob& taken, int replies_lost) {
  WaitingJob next = taken;
  next.replies_lost += replies_lost;
  for (ledger::RunRef& ref : next.refs)
    ref.attempt = free_attempt(state_.project_dir / ref.run, ref.attempt + 1);
  waiting_.push_front(std::move(next));
}

// Ends the attempts and puts new attempts of the same runs at the head of what waits.
void HandOver::put_back(const jobs::LiveJob& live, const WaitingJob& taken,
                        const std::string& reason) {
  give_back(live, runlog::Status::missing, reason);
  again(taken, 0);
}

void HandOver::give_back(const jobs::LiveJob& live, runlog::Status status,
                         const std::string& reason) {
  for (const ledger::RunRef& ref : live.refs) {
    ledger::Entry entry;
    entry.op = ledger::Op::final;
    entry.cluster = state_.cluster_name();
    entry.runs = {ref};
    entry.status = status;
    entry.reason = reason;
    state_.ledger.append(entry);
  }
}

}  // namespace tessera::submit
