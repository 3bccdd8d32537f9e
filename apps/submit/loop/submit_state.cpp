// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/loop/submit_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "lib/base/clock.h"
#include "lib/base/process.h"
#include "lib/point/point_values.h"

namespace tessera::submit {

namespace fs = std::filesystem;

int free_attempt(const fs::path& run_dir, int attempt) {
  while (fs::exists(run_dir / fmt::format("run.{}.json", attempt)) ||
         fs::exists(run_dir / runlog::log_file_name(attempt, 0, 0))) {
    ++attempt;
  }
  return attempt;
}

double jitter() {
  thread_local std::minstd_rand random(std::random_device{}());
  return std::uniform_real_distribution(0.9, 1.1)(random);
}

bool is_out_of_memory(const std::optional<runlog::Status>& status) {
  return status == runlog::Status::oom || status == runlog::Status::host_oom;
}

SubmitState::SubmitState(cluster::Scheduler& on, const SubmitOptions& with,
                         const SubmitEvents& shown, const std::atomic<bool>& told_to_stop)
    : scheduler(on),
      options(with),
      events(shown),
      interrupted(told_to_stop),
      project_dir(options.workspace / options.project),
      stays(options.wait || !scheduler.queues()),
      ledger(project_dir, user_name(), host_name()),
      preparation(options, scheduler.cluster(), events, interrupted),
      wall(options.stop_axis_after_oom) {}

void SubmitState::note(const std::string& text) const {
  if (events.note) events.note(text);
}

void SubmitState::show_progress() const {
  if (events.progress) events.progress(progress);
}

bool SubmitState::is_beyond_wall(const std::string& run) {
  const sweep::Planned& point = *points.at(run);
  const auto reason = wall.beyond(point.point);
  if (!reason) return false;
  ++report.skipped;
  ledger::Entry entry;
  entry.op = ledger::Op::plan;
  const auto values = sweep::values_of(point.point);
  entry.dropped.push_back({.label = point.label,
                           .reason = std::string(to_text(sweep::DropReason::memory)),
                           .detail = *reason,
                           .values = {values.begin(), values.end()}});
  ledger.append(std::move(entry));
  return true;
}

void SubmitState::take(const jobs::Ended& ended) {
  const std::string& run = ended.entry.runs.front().run;
  const bool ok = ended.outcome.status == runlog::Status::ok;
  // Also partial ones: figures that a person cut short.
  const bool cancelled = ended.outcome.ended_by == runlog::EndedBy::cancelled;
  int& counted = ok ? report.ok : cancelled ? report.cancelled : report.failed;
  ++counted;
  ++(ok ? progress.ok : progress.failed);
  if (events.ended) events.ended(run, ended.outcome);
  if (const auto known = points.find(run);
      known != points.end() && is_out_of_memory(ended.outcome.status))
    wall.ran_out(known->second->point);
  if (!scheduler.queues() && preparation.forget_peak_if_exceeded(run, ended.outcome) &&
      events.peak_exceeded)
    events.peak_exceeded(run);
  append_or_keep(ended.entry);
}

void SubmitState::append_or_keep(const ledger::Entry& entry) {
  try {
    ledger.append(entry);
  } catch (...) {
    if (!fault) fault = std::current_exception();
  }
}

void SubmitState::pause(double seconds) const {
  const double until = monotonic_seconds() + seconds;
  while (!interrupted) {
    const double left = until - monotonic_seconds();
    if (left <= 0) return;
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, kSlice_s)));
  }
  // What runs here is still to be waited for, without spinning.
  std::this_thread::sleep_for(std::chrono::duration<double>(std::min(seconds, 0.02)));
}

}  // namespace tessera::submit
