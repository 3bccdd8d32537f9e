#include "lib/submit/submit_local.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/process.h"
#include "lib/ledger/ledger.h"
#include "lib/ledger/lock.h"
#include "lib/ledger/plan_words.h"
#include "lib/ledger/state.h"
#include "lib/submit/preparation.h"
#include "lib/submit/reconcile.h"
#include "lib/sweep/identity.h"

namespace tessera::submit {

namespace fs = std::filesystem;

namespace {

std::vector<ledger::PlannedPoint> planned_points(const sweep::Expansion& plan,
                                                 const SubmitOptions& options) {
  std::vector<ledger::PlannedPoint> planned;
  for (const sweep::Planned& point : plan.points) {
    const std::string slug = sweep::slug(point.label, point.point, options.project);
    planned.push_back({.id = point.id,
                       .run = sweep::run_name(options.project, slug, point.id, 1),
                       .label = point.label,
                       .repeats = options.repeats,
                       .point = point.point});
  }
  return planned;
}

// What is selected and what was dropped, in lines of bounded length; nothing that is the ledger's
// last word already.
void append_plan(ledger::Ledger& ledger, const ledger::Contents& contents,
                 const std::vector<ledger::PlannedPoint>& planned,
                 const std::vector<sweep::Dropped>& dropped) {
  std::map<std::string, ledger::PlannedPoint> known;
  std::set<ledger::DroppedPoint> known_drops;
  for (const ledger::Entry& entry : contents.entries) {
    for (const ledger::PlannedPoint& point : entry.points) known[point.run] = point;
    known_drops.insert(entry.dropped.begin(), entry.dropped.end());
  }
  const ledger::PlanWords words(contents);
  std::set<std::string> selected;
  for (const ledger::PlannedPoint& point : planned) selected.insert(point.id);
  ledger::Entry entry;
  entry.op = ledger::Op::plan;
  const auto flush = [&](std::size_t least) {
    if (entry.points.size() + entry.dropped.size() < least) return;
    ledger.append(entry);
    entry.points.clear();
    entry.dropped.clear();
  };
  // Drops first: what this plan selects as well (an include, a duplicate) is selected.
  for (const sweep::Dropped& point : dropped) {
    const ledger::DroppedPoint drop{.label = point.label,
                                    .reason = std::string(to_text(point.reason)),
                                    .detail = point.detail,
                                    .values = {point.values.begin(), point.values.end()}};
    const auto is_selected_now = [&] {
      return std::ranges::any_of(words.selected(drop),
                                 [&](const std::string& id) { return selected.contains(id); });
    };
    if (known_drops.contains(drop) && (!words.selected_last(drop) || is_selected_now())) continue;
    entry.dropped.push_back(drop);
    flush(ledger::kPointsPerPlan);
  }
  for (const ledger::PlannedPoint& point : planned) {
    const auto found = known.find(point.run);
    if (found != known.end() && found->second == point && !words.dropped_last(point)) continue;
    entry.points.push_back(point);
    flush(ledger::kPointsPerPlan);
  }
  flush(1);
}

// The next number that neither ledger nor folder has used.
int free_attempt(const fs::path& run_dir, int attempt) {
  while (fs::exists(run_dir / fmt::format("run.{}.json", attempt)) ||
         fs::exists(run_dir / runlog::log_file_name(attempt, 0, 0))) {
    ++attempt;
  }
  return attempt;
}

ledger::Entry entry_of(ledger::Op op, const ledger::RunRef& ref, const std::string& cluster) {
  ledger::Entry entry;
  entry.op = op;
  entry.cluster = cluster;
  entry.runs = {ref};
  return entry;
}

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

// Whether a person told this attempt to end: `submit cancel` writes so before it sends the signal.
bool was_cancelled(const fs::path& project_dir, const ledger::RunRef& ref) {
  const auto states = ledger::run_states(ledger::read_ledger(project_dir));
  const auto found = states.find(ref.run);
  return found != states.end() && std::ranges::any_of(found->second.attempts, [&](const auto& a) {
           return a.attempt == ref.attempt && a.cancelled;
         });
}

}  // namespace

SubmitReport submit_local(const sweep::Expansion& plan, const SubmitOptions& options,
                          const SubmitEvents& events, const std::atomic<bool>& interrupted) {
  const fs::path project_dir = options.workspace / options.project;
  const std::string user = user_name();
  // First what may fail without a trace: a state that cannot be written leaves no folder behind.
  ledger::require_writable_state();
  make_directories(project_dir);
  const ledger::ProjectLock lock(project_dir, user, options.break_lock);
  ledger::Contents contents = ledger::read_ledger(project_dir);
  ledger::require_undamaged(contents);
  ledger::Ledger ledger(project_dir, user, host_name());
  ledger::remember_project(options.project, options.workspace);

  const Reconciled reconciled = reconcile_local(project_dir, ledger::run_states(contents));
  for (const ledger::Entry& entry : reconciled.finals) ledger.append(entry);
  if (!reconciled.finals.empty()) contents = ledger::read_ledger(project_dir);
  const std::vector<ledger::PlannedPoint> planned = planned_points(plan, options);
  append_plan(ledger, contents, planned, plan.dropped);
  const std::vector<Choice> choices =
      select(planned, ledger::run_states(contents), options.only, user);
  events.selected(choices, static_cast<int>(reconciled.living.size()));

  SubmitReport report;
  Preparation preparation(options, events, interrupted);
  cluster::LocalQueue queue;
  queue.max_parallel = options.max_parallel;
  queue.living = reconciled.living;
  for (const Choice& choice : choices) {
    count(report, choice);
    if (choice.verdict != Verdict::start) continue;
    const fs::path run_dir = project_dir / choice.ref.run;
    ledger::RunRef ref = choice.ref;
    ref.attempt = free_attempt(run_dir, choice.ref.attempt);
    preparation.add(plan.points[choice.point], ref);
    queue.to_start.push_back({.run = ref.run,
                              .attempt = ref.attempt,
                              .start = {.trainer = options.trainer,
                                        .run_dir = run_dir,
                                        .attempt = ref.attempt,
                                        .spec_json = {},
                                        .user = user,
                                        .env = {},
                                        .unset = {}}});
  }
  std::map<std::string, ledger::RunRef> adopted;  // by run
  for (const cluster::AdoptedRun& living : queue.living) {
    for (const ledger::Entry& entry : contents.entries) {
      for (const ledger::RunRef& ref : entry.runs) {
        if (ref.run == living.run && ref.attempt == living.attempt) adopted[ref.run] = ref;
      }
    }
  }
  const auto ref_of = [&](const std::string& run) -> const ledger::RunRef& {
    const auto found = adopted.find(run);
    return found != adopted.end() ? found->second : preparation.ref(run);
  };

  cluster::QueueEvents queue_events;
  queue_events.prepare = std::ref(preparation);
  queue_events.intent = [&](const cluster::LocalRun& run) {
    ledger.append(entry_of(ledger::Op::intent, ref_of(run.run), options.cluster.name));
    ++report.started;
  };
  queue_events.accepted = [&](const cluster::LocalRun& run, const ProcessRef& process) {
    ledger::Entry entry = entry_of(ledger::Op::accepted, ref_of(run.run), options.cluster.name);
    entry.job = std::to_string(process.pid);
    ledger.append(entry);
  };
  queue_events.ended = [&](const std::string& run, int, const cluster::Outcome& as_logged) {
    const bool may_be_cancelled =
        as_logged.status == runlog::Status::partial || as_logged.status == runlog::Status::failed;
    const bool cancelled = may_be_cancelled && was_cancelled(project_dir, ref_of(run));
    const cluster::Outcome outcome =
        cancelled ? cluster::outcome_of_cancelled(as_logged) : as_logged;
    ledger::Entry entry = entry_of(ledger::Op::final, ref_of(run), options.cluster.name);
    entry.status = outcome.status;
    entry.reason = outcome.reason;
    int& counted = outcome.status == runlog::Status::ok ? report.ok
                   : cancelled                          ? report.cancelled
                                                        : report.failed;
    ++counted;
    events.ended(run, outcome);
    if (!adopted.contains(run) && preparation.forget_peak_if_exceeded(run, outcome))
      events.peak_exceeded(run);
    ledger.append(entry);
  };
  queue_events.progress = events.progress;
  cluster::run_local(queue, queue_events, interrupted);
  report.not_started = static_cast<int>(queue.to_start.size()) - report.started;
  return report;
}

}  // namespace tessera::submit
