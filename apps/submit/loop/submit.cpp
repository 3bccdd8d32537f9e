// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/loop/submit.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <vector>

#include "apps/submit/loop/hand_over.h"
#include "apps/submit/loop/job_poller.h"
#include "apps/submit/loop/reconcile.h"
#include "apps/submit/loop/submit_state.h"
#include "lib/base/clock.h"
#include "lib/base/file.h"
#include "lib/base/process.h"
#include "lib/base/text.h"
#include "lib/jobs/schedulers.h"
#include "lib/ledger/ledger.h"
#include "lib/ledger/lock.h"
#include "lib/ledger/state.h"

namespace tessera::submit {

namespace fs = std::filesystem;

namespace {

// Hands over and watches in turn, until there is no more to do.
class Submitter {
 public:
  Submitter(SubmitState& state, std::deque<WaitingJob> waiting)
      : state_(state), hand_over_(state, std::move(waiting)), watch_(state) {}

  SubmitReport run() {
    while (true) {
      if (state_.stays && !state_.live.empty()) watch_.poll_if_due();
      const bool more = start_some();
      state_.show_progress();
      if (more) continue;
      if (finished()) break;
      const double until_next_s = hand_over_.not_before_s() - monotonic_seconds();
      const double slice_s = std::min(state_.scheduler.poll_s(), kSlice_s);
      state_.pause(until_next_s > 0 ? std::min(slice_s, until_next_s) : slice_s);
    }
    state_.report.not_started += hand_over_.runs_waiting();
    for (const jobs::LiveJob& live : state_.live)
      state_.report.on_cluster += static_cast<int>(live.refs.size());
    if (state_.fault && state_.scheduler.queues() && state_.report.started > 0) {
      state_.note(fmt::format("{} in {} were handed over before this",
                              counted(state_.report.started, "run"),
                              counted(state_.report.jobs, "job")));
    }
    if (state_.fault) std::rethrow_exception(state_.fault);
    return state_.report;
  }

 private:
  // Hands over what may be now. Whether there is more that may be handed over at once.
  bool start_some() {
    while (!hand_over_.empty() && !stopped()) {
      // What will never start keeps nothing else from starting.
      const auto in_flight = std::ranges::count_if(
          state_.live, [&](const jobs::LiveJob& live) { return !state_.is_stuck(live); });
      const bool full =
          state_.stays && state_.options.in_flight > 0 && in_flight >= state_.options.in_flight;
      if (full || monotonic_seconds() < hand_over_.not_before_s()) return false;
      try {
        if (!hand_over_.start_next()) return false;
      } catch (...) {
        state_.fault = std::current_exception();
        return false;
      }
      // Ends are seen and shown between hand-overs too.
      if (state_.stays) return true;
      state_.show_progress();
    }
    if (state_.interrupted && !state_.scheduler.queues()) tell_to_end();
    return false;
  }

  bool finished() const {
    const bool no_more = hand_over_.empty() || stopped();
    if (!no_more) return false;
    if (!state_.stays) return true;
    // On a cluster jobs go on without us.
    if (state_.scheduler.queues() && (state_.interrupted || state_.fault)) return true;
    const bool all_stuck = std::ranges::all_of(
        state_.live, [&](const jobs::LiveJob& live) { return state_.is_stuck(live); });
    return state_.live.empty() || all_stuck;
  }

  bool stopped() const {
    return state_.interrupted || state_.fault != nullptr || state_.report.gave_up;
  }

  void tell_to_end() {
    if (told_to_end_) return;
    told_to_end_ = true;
    std::vector<cluster::OpenJob> jobs;
    for (const jobs::LiveJob& live : state_.live) jobs.push_back(live.job);
    state_.scheduler.cancel(jobs);
  }

  SubmitState& state_;
  HandOver hand_over_;
  JobPoller watch_;
  bool told_to_end_ = false;
};

}  // namespace

SubmitReport submit_plan(const sweep::Expansion& plan, cluster::Scheduler& scheduler,
                         const SubmitOptions& options, const SubmitEvents& events,
                         const std::atomic<bool>& interrupted) {
  const fs::path project_dir = options.workspace / options.project;
  // First what may fail without a trace: a state that cannot be written leaves no folder behind.
  ledger::require_writable_state();
  make_directories(project_dir);
  const ledger::ProjectLock lock(project_dir, user_name(), options.break_lock);
  ledger::Contents known = ledger::read_ledger(project_dir);
  ledger::require_undamaged(known);
  ledger::remember_project(options.project, options.workspace);
  jobs::keep_cluster_file(project_dir, scheduler.cluster());
  SubmitState state(scheduler, options, events, interrupted);
  std::deque<WaitingJob> waiting = reconcile(state, std::move(known), plan);
  return Submitter(state, std::move(waiting)).run();
}

}  // namespace tessera::submit
