// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/loop/reconcile.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/submit/loop/build_jobs.h"
#include "apps/submit/loop/plan_lines.h"
#include "lib/base/error.h"
#include "lib/base/process.h"
#include "lib/base/text.h"
#include "lib/cluster/outcome.h"
#include "lib/jobs/resolve_jobs.h"
#include "lib/ledger/state.h"

namespace tessera::submit {

namespace {

// A project whose runs are there and whose ledger is not would be run a second time.
void require_ledger_of_runs(const SubmitState& state, const ledger::Contents& known) {
  if (!known.entries.empty()) return;
  std::error_code fault;
  for (const auto& entry : std::filesystem::directory_iterator(state.project_dir, fault)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(state.options.project + "--") || !cluster::has_log(entry.path(), 1))
      continue;
    throw Error(ExitCode::conflict, state.project_dir.string(),
                fmt::format("the ledger is gone, and {} has run", name),
                fmt::format("submit rebuild {} makes it anew", state.options.project));
  }
}

// Before anything else: what earlier submits left, and where their jobs are now. True if nothing
// was to be settled: `known` still holds.
bool settle_what_was(SubmitState& state, const ledger::Contents& known) {
  const auto states = ledger::run_states(known);
  // A run that ended ok and whose log is gone since counts as missing.
  const std::vector<ledger::Entry> lost = jobs::lost_results(state.project_dir, states);
  if (!lost.empty()) state.ledger.append(lost);
  state.live = jobs::live_jobs(state.project_dir, states, user_name(), state.cluster_name());
  const bool was_settled = lost.empty() && state.live.empty();
  state.live = jobs::resolve_jobs(
      std::move(state.live), state.scheduler, jobs::cancelled_in(states), state.interrupted,
      [&](const ledger::Entry& entry) { state.ledger.append(entry); },
      [&](const jobs::Ended& ended) { state.ledger.append(ended.entry); },
      [&](const std::string& text) { state.note(text); });
  // Nobody here can wait for those.
  for (const jobs::LiveJob& live : state.live) {
    if (live.elsewhere)
      state.note(fmt::format("{} runs on {}, which cannot be asked from here", live.job.name,
                             live.job.host));
  }
  std::erase_if(state.live, [](const jobs::LiveJob& live) { return live.elsewhere; });
  if (state.interrupted)
    throw Error(ExitCode::interrupted, "", "interrupted", "nothing was submitted");
  return was_settled;
}

// Counts a run that is not started, by the reason.
void count(SubmitReport& report, const Choice& choice) {
  switch (choice.verdict) {
    case Verdict::done:
      if (choice.status == runlog::Status::ok) {
        ++report.ok_before;
      } else {
        ++report.not_ok_before[*choice.status];
      }
      break;
    case Verdict::unselected:
    case Verdict::exhausted:
      ++report.unselected;
      break;
    case Verdict::others:
      ++report.others;
      break;
    case Verdict::start:
    case Verdict::running:
      break;
  }
}

// Refuses runs that exceed the budget, before any of them is handed over.
void require_budget(std::span<const RunToPlace> runs, double max_gpu_hours) {
  if (max_gpu_hours <= 0) return;
  double hours = 0;
  for (const RunToPlace& run : runs) {
    const double seconds = run.seconds > 0 ? run.seconds : static_cast<double>(run.time_limit_s);
    if (run.shape.gpu != "cpu") hours += seconds * static_cast<double>(run.shape.ranks) / 3600;
  }
  if (hours <= max_gpu_hours) return;
  throw Error(
      ExitCode::refused, "--max-gpu-hours",
      fmt::format("{:.1f} GPU-hours are expected, {:.1f} may be spent", hours, max_gpu_hours),
      "fewer points, or a larger budget; nothing was submitted");
}

// `contents`: the ledger as it is once all is settled.
std::deque<WaitingJob> select_runs(SubmitState& state, const ledger::Contents& contents,
                                   const sweep::Expansion& plan) {
  const auto planned = planned_points(plan, state.options.project, state.options.repeats);
  // What is run again was planned before, and by whom and when is for its own plan to say.
  if (state.options.select.named.empty())
    append_plan(state.ledger, contents, planned, plan.dropped);
  // Decide for each planned run whether it starts.
  const auto states = ledger::run_states(contents);
  const auto choices = select(planned, states, state.options.select, user_name());
  require_named_free(choices, states, state.options.select);
  for (const Choice& choice : choices) {
    state.points[choice.ref.run] = &plan.points[choice.point];
    if (is_out_of_memory(choice.status)) state.wall.ran_out(plan.points[choice.point].point);
  }
  int adopted = 0;
  for (const jobs::LiveJob& live : state.live) adopted += static_cast<int>(live.refs.size());
  if (state.events.selected) state.events.selected(choices, adopted);

  // Collect the runs that start, each as an attempt whose number is free.
  std::vector<RunToPlace> to_place;
  std::vector<ledger::RunRef> refs;
  for (const Choice& choice : choices) {
    count(state.report, choice);
    if (choice.verdict != Verdict::start || state.is_beyond_wall(choice.ref.run)) continue;
    const sweep::Planned& point = plan.points[choice.point];
    ledger::RunRef ref = choice.ref;
    ref.attempt = free_attempt(state.project_dir / ref.run, ref.attempt);
    state.preparation.add(point, ref);
    to_place.push_back(place_of(point, state.options));
    refs.push_back(std::move(ref));
  }
  state.progress.total = static_cast<int>(refs.size()) + adopted;
  // All runs are known now, and none has been handed over.
  require_budget(to_place, state.options.max_gpu_hours);
  if (state.scheduler.cluster().array && state.options.in_flight > 0 && to_place.size() > 1)
    state.note("no arrays: max_in_flight bounds the jobs that are there at once");
  const auto unknown =
      std::ranges::count_if(to_place, [](const RunToPlace& run) { return run.seconds <= 0; });
  if (state.options.pack_s > 0 && unknown > 0) {
    state.note(fmt::format("{} not packed: no time estimate; give one with --time",
                           counted(unknown, "run")));
  }
  // Put the runs into jobs: alone, one after the other, or as arrays.
  std::deque<WaitingJob> waiting;
  for (const JobGroup& group : group_jobs(to_place, grouping_of(state.scheduler, state.options))) {
    WaitingJob& job = waiting.emplace_back();
    job.shape = to_place[group.runs.front()].shape;
    job.array = group.array;
    job.time_limit_s = group.time_limit_s;
    for (const std::size_t run : group.runs) job.refs.push_back(refs[run]);
  }
  return waiting;
}

}  // namespace

std::deque<WaitingJob> reconcile(SubmitState& state, ledger::Contents known,
                                 const sweep::Expansion& plan) {
  require_ledger_of_runs(state, known);
  const bool was_settled = settle_what_was(state, known);
  // Large ledgers take longer to read than all else, so once where that is enough.
  if (!was_settled) known = ledger::read_ledger(state.project_dir);
  return select_runs(state, known, plan);
}

}  // namespace tessera::submit
