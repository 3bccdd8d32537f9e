#include "lib/submit/submit_local.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/process.h"
#include "lib/ledger/ledger.h"
#include "lib/ledger/lock.h"
#include "lib/ledger/plan_words.h"
#include "lib/ledger/state.h"
#include "lib/submit/cpu_peak.h"
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

}  // namespace

SubmitReport submit_local(const sweep::Expansion& plan, const SubmitOptions& options,
                          const SubmitEvents& events, const std::atomic<bool>& interrupted) {
  const fs::path project_dir = options.workspace / options.project;
  const std::string user = user_name();
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
  cluster::LocalQueue queue;
  queue.max_parallel = options.max_parallel;
  queue.living = reconciled.living;
  std::map<std::string, ledger::RunRef> refs;                // by run
  std::map<std::int64_t, std::optional<sweep::Peak>> peaks;  // by threads
  for (const Choice& choice : choices) {
    if (choice.verdict == Verdict::done) ++report.already;
    if (choice.verdict == Verdict::others) ++report.others;
    if (choice.verdict != Verdict::start) continue;
    const sweep::Planned& point = plan.points[choice.point];
    const fs::path run_dir = project_dir / choice.ref.run;
    sweep::RunSpec spec;
    spec.project = options.project;
    spec.id = point.id;
    spec.run = choice.ref.run;
    spec.label = point.label;
    spec.repeat = choice.ref.repeat;
    spec.repeats = options.repeats;
    spec.attempt = free_attempt(run_dir, choice.ref.attempt);
    spec.user = user;
    spec.point = point.point;
    spec.run_dir = run_dir.string();
    spec.shared_with = options.max_parallel - 1 + static_cast<int>(reconciled.living.size());
    if (point.point.gpu == "cpu" && reconciled.living.empty() && !interrupted) {
      const auto threads = point.point.threads;
      if (!peaks.contains(threads))
        peaks[threads] = cpu_peak(options.trainer, static_cast<int>(threads));
      spec.peak = peaks[threads];
    }
    ledger::RunRef ref = choice.ref;
    ref.attempt = spec.attempt;
    refs[ref.run] = ref;
    std::map<std::string, std::string> env = options.cluster.env;
    // Threads of several runs that spin while they wait take the cores from each other:
    // milliseconds an operation.
    if (options.max_parallel > 1 && std::getenv("OMP_WAIT_POLICY") == nullptr) {
      env.try_emplace("OMP_WAIT_POLICY", "passive");
    }
    for (const auto& [name, value] : point.point.env) env[name] = value;
    queue.to_start.push_back({.run = spec.run,
                              .attempt = spec.attempt,
                              .start = {.trainer = options.trainer,
                                        .run_dir = run_dir,
                                        .attempt = spec.attempt,
                                        .spec_json = sweep::run_spec_json(spec),
                                        .user = user,
                                        .env = env}});
  }
  for (const cluster::AdoptedRun& adopted : queue.living) {
    for (const ledger::Entry& entry : contents.entries) {
      for (const ledger::RunRef& ref : entry.runs) {
        if (ref.run == adopted.run && ref.attempt == adopted.attempt) refs[ref.run] = ref;
      }
    }
  }

  cluster::QueueEvents queue_events;
  queue_events.intent = [&](const cluster::LocalRun& run) {
    ledger.append(entry_of(ledger::Op::intent, refs.at(run.run), options.cluster.name));
    ++report.started;
  };
  queue_events.accepted = [&](const cluster::LocalRun& run, const ProcessRef& process) {
    ledger::Entry entry = entry_of(ledger::Op::accepted, refs.at(run.run), options.cluster.name);
    entry.job = std::to_string(process.pid);
    ledger.append(entry);
  };
  queue_events.ended = [&](const std::string& run, int, const cluster::Outcome& outcome) {
    ledger::Entry entry = entry_of(ledger::Op::final, refs.at(run), options.cluster.name);
    entry.status = outcome.status;
    entry.reason = outcome.reason;
    ++(outcome.status == runlog::Status::ok ? report.ok : report.failed);
    events.ended(run, outcome);
    ledger.append(entry);
  };
  queue_events.progress = events.progress;
  cluster::run_local(queue, queue_events, interrupted);
  report.not_started = static_cast<int>(queue.to_start.size()) - report.started;
  return report;
}

}  // namespace tessera::submit
