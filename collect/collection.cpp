// SPDX-License-Identifier: Apache-2.0
#include "collect/collection.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "collect/aggregate.h"
#include "lib/base/process.h"
#include "lib/jobs/query_clusters.h"
#include "lib/ledger/plan_history.h"

namespace tessera::collect {

namespace fs = std::filesystem;

namespace {

// The ledgers beside the runs, each read once.
class Ledgers {
 public:
  struct Known {
    ledger::Contents contents;
    std::map<std::string, ledger::RunState> runs;
  };

  explicit Ledgers(bool ask) : ask_(ask) {}

  // Returns the ledger of a project's folder, and asks its clusters about runs without an end.
  const Known& of(const fs::path& project_folder, Notes& notes) {
    const fs::path folder = fs::absolute(project_folder).lexically_normal();
    const auto [at, added] = known_.try_emplace(folder);
    if (added) {
      at->second.contents = ledger::read_ledger(folder);
      at->second.runs = ledger::run_states(at->second.contents);
      for (const ledger::Damage& damage : at->second.contents.damage)
        notes.add(damage.where, damage.what + "; left out");
      ask_about(folder, at->second, notes);
    }
    return at->second;
  }

 private:
  // Runs of this machine are told by their processes, those of a cluster by it.
  void ask_about(const fs::path& folder, Known& known, Notes& notes) const {
    const auto is_open = [](const ledger::AttemptState& attempt) {
      return attempt.last != ledger::Op::final;
    };
    const bool any_open = std::ranges::any_of(known.runs, [&](const auto& each) {
      return std::ranges::any_of(each.second.attempts, is_open);
    });
    if (!any_open) return;
    jobs::Schedulers schedulers(folder, user_name());
    const jobs::ClusterAnswers asked = jobs::query_clusters(folder, known.runs, schedulers, ask_);
    for (const std::string& silent : asked.silent)
      notes.add(folder.string(), "not asked: " + silent);
    const auto keeps_queue = [&](const std::string& cluster) {
      const auto* scheduler = schedulers.find(cluster);
      return scheduler == nullptr || scheduler->queues();
    };
    for (const ledger::Entry& entry : asked.finals) {
      if (keeps_queue(entry.cluster)) known.contents.entries.push_back(entry);
    }
    known.runs = ledger::run_states(known.contents);
    for (const auto& [run, open] : asked.open) {
      if (!keeps_queue(open.cluster)) continue;
      for (ledger::AttemptState& attempt : known.runs.at(run).attempts) {
        if (!is_open(attempt)) continue;
        attempt.seen = open.status;
        attempt.seen_reason =
            open.job.empty() ? open.reason : fmt::format("job {}: {}", open.job, open.reason);
      }
    }
  }

  const bool ask_;
  std::map<fs::path, Known> known_;
};

// A run, and what the ledger knows of it.
struct LocatedRun {
  Run run;
  const ledger::RunState* submitted = nullptr;
};

// All runs that are asked for, with logs or without.
class Gatherer {
 public:
  Gatherer(const Request& request, Notes& notes)
      : request_(request), notes_(notes), ledgers_(request.ask) {}

  std::vector<LocatedRun> gather(runlog::Depth depth) {
    std::vector<RunFiles> files;  // of a project before the same below a folder
    // Find the folders of runs that may be asked for.
    std::set<fs::path> project_folders;
    for (const Project& project : request_.projects) {
      std::ranges::move(find_project(project.workspace, project.name), std::back_inserter(files));
      project_folders.insert(project.workspace / project.name);
    }
    for (const fs::path& folder : request_.folders) {
      std::ranges::move(find_below(folder, notes_), std::back_inserter(files));
      project_folders.insert(folder);
    }
    forget_doubles(files);
    std::erase_if(files, [&](const RunFiles& of_run) { return !maybe_wanted(of_run); });
    // A folder that is called as its run is that run, another one may be a copy.
    std::ranges::stable_partition(
        files, [](const RunFiles& of_run) { return parse_run_name(of_run.name()).has_value(); });
    for (std::size_t i = 0; i < files.size(); ++i) {
      // A folder without files of our names holds loose logs.
      if (!files[i].logs.empty()) {
        for (Run& run : read_loose_logs(files[i].logs, notes_)) add_found(std::move(run), files[i]);
      } else if (auto run = read_run(files[i], notes_, depth)) {
        add_found(*std::move(run), files[i]);
      }
      if (request_.progress) request_.progress(i + 1, files.size());
    }
    // Then read the logs that were named themselves.
    std::vector<fs::path> logs;
    for (const fs::path& path : request_.logs)
      std::ranges::move(find_files(path, notes_), std::back_inserter(logs));
    for (Run& run : read_loose_logs(logs, notes_)) add_run(std::move(run), {});
    // What the ledger alone knows comes last.
    for (const fs::path& folder : project_folders) add_submitted(folder);
    return std::move(runs_);
  }

  Ledgers& ledgers() { return ledgers_; }

 private:
  // The same folder may be named twice, also by a link.
  static void forget_doubles(std::vector<RunFiles>& files) {
    std::set<fs::path> seen;
    std::erase_if(files, [&](const RunFiles& of_run) {
      std::error_code fault;
      const fs::path real = fs::canonical(of_run.folder, fault);
      return !fault && !seen.insert(real).second;
    });
  }

  // By the folder's name if it is a run's; others are read first.
  bool maybe_wanted(const RunFiles& files) const {
    const std::string name = files.name();
    const auto parts = parse_run_name(name);
    return !parts || request_.selection.takes(parts->project, name);
  }

  // A folder with another name than its run adds only runs that have no folder of their own name.
  void add_found(Run run, const RunFiles& files) {
    if (files.name() != run.run) {
      if (!files.project.empty() && !run.project.empty() && run.project != files.project) return;
      if (!run.run.empty() && names_.contains(run.run)) {
        notes_.add(files.folder,
                   fmt::format("holds {}, which is there already; left out", run.run));
        return;
      }
    }
    add_run(std::move(run), files.folder);
  }

  // Adds a run if it is asked for, with what the ledger beside its folder knows.
  void add_run(Run run, const fs::path& folder) {
    if (!request_.selection.takes(run.project, run.run)) return;
    LocatedRun located{.run = std::move(run)};
    if (!folder.empty()) {
      const auto& known =
          ledgers_.of(fs::absolute(folder).lexically_normal().parent_path(), notes_);
      const auto found = known.runs.find(located.run.run);
      if (found != known.runs.end()) located.submitted = &found->second;
    }
    names_.insert(located.run.run);
    runs_.push_back(std::move(located));
  }

  // Runs that the ledger knows and that have no files here.
  void add_submitted(const fs::path& project_folder) {
    const auto& known = ledgers_.of(project_folder, notes_);
    for (const auto& [name, state] : known.runs) {
      const auto parts = parse_run_name(name);
      if (!parts || names_.contains(name)) continue;
      if (!request_.selection.takes(parts->project, name)) continue;
      Run run{.project = parts->project,
              .run = name,
              .id = state.ref.id,
              .repeat = state.ref.repeat,
              .folder = project_folder / name,
              .attempts = {}};
      names_.insert(name);
      runs_.push_back({.run = std::move(run), .submitted = &state});
    }
  }

  const Request& request_;
  Notes& notes_;
  Ledgers ledgers_;
  std::vector<LocatedRun> runs_;
  std::set<std::string> names_;
};

// A selected point none of whose repeats was ever submitted.
Row missing_row(const std::string& project, const ledger::Entry& plan,
                const ledger::PlannedPoint& point, const Catalogues& catalogues) {
  Run run;
  run.project = project;
  run.run = point.run;
  run.id = point.id;
  RunOutcome outcome;
  outcome.outcome = outcome_without_files(nullptr);
  outcome.outcome.facts.label = point.label;
  outcome.outcome.facts.user = plan.user;
  if (!plan.cluster.empty()) outcome.outcome.facts.cluster = plan.cluster;
  outcome.outcome.facts.repeats = point.repeats;
  if (point.point) fill_from_point(outcome.outcome.facts, *point.point);
  outcome.point = point.point;
  return make_row(run, outcome, catalogues);
}

// Returns the row of a point that a plan dropped.
Row skipped_row(const std::string& project, const ledger::Entry& plan,
                const ledger::DroppedPoint& point, const Catalogues& catalogues) {
  Run run;
  run.project = project;
  RunOutcome outcome;
  outcome.outcome.status = runlog::Status::skipped;
  outcome.outcome.reason =
      point.detail.empty() ? point.reason : fmt::format("{}: {}", point.reason, point.detail);
  runlog::Facts& facts = outcome.outcome.facts;
  facts.label = point.label;
  facts.user = plan.user;
  outcome.point = ledger::point_of(point);
  if (!outcome.point) return make_row(run, outcome, catalogues);
  // The shape is known where the model was asked for by a built-in name.
  const auto model = point.values.find("model");
  const model::Shape* shape = model != point.values.end() && model->second == point.label
                                  ? built_in_shape(point.label)
                                  : nullptr;
  if (shape != nullptr && outcome.point->seq_len > 0) {
    outcome.point->model = *shape;
    fill_from_point(facts, *outcome.point);
  } else {
    fill_settings(facts, *outcome.point);
  }
  return make_row(run, outcome, catalogues);
}

// Older versions had the values in the text, one line for the same drop.
std::string detail_with_values(const ledger::DroppedPoint& point) {
  std::string text = point.detail;
  for (const auto& [key, value] : point.values)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  return text;
}

// What was planned in the ledger: points without a run become rows, and repeats are as asked for.
// The last plan that named a point says whether it is missing or skipped.
void add_planned(const std::string& project, const ledger::Contents& contents,
                 const Request& request, std::vector<Row>& rows) {
  std::map<std::string, int> repeats;
  std::set<std::string> with_run;
  for (const Row& row : rows) {
    if (row.project == project) with_run.insert(row.id);
  }
  const ledger::PlanHistory words(contents);
  std::set<std::string> seen = with_run;
  std::set<ledger::DroppedPoint> dropped;
  // A drop may also stand there as older versions wrote it. Both give one row.
  for (const ledger::Entry& entry : contents.entries) {
    for (const ledger::DroppedPoint& point : entry.dropped) {
      if (!point.values.empty()) {
        dropped.insert({.label = point.label,
                        .reason = point.reason,
                        .detail = detail_with_values(point),
                        .values = {}});
      }
    }
  }
  // Add a row for each point that has no run.
  for (const ledger::Entry& entry : contents.entries) {
    for (const ledger::PlannedPoint& point : entry.points) {
      int& asked = repeats[point.id];
      asked = std::max(asked, point.repeats);
      if (!request.selection.takes(project, point.run) || words.dropped_last(point)) continue;
      if (seen.insert(point.id).second)
        rows.push_back(missing_row(project, entry, point, request.catalogues));
    }
    // A submit that is given again drops the same points again.
    for (const ledger::DroppedPoint& point : entry.dropped) {
      if (!request.selection.filters.empty() || !request.selection.takes(project, "")) continue;
      const bool has_run = std::ranges::any_of(
          words.selected(point), [&](const std::string& id) { return with_run.contains(id); });
      if (has_run || words.selected_last(point)) continue;
      if (dropped.insert(point).second)
        rows.push_back(skipped_row(project, entry, point, request.catalogues));
    }
  }
  // The plans say how many repeats were asked for.
  for (Row& row : rows) {
    const auto asked = repeats.find(row.id);
    if (row.project == project && asked != repeats.end())
      row.repeats_asked = std::max(row.repeats_asked, asked->second);
  }
}

}  // namespace

Collection collect_rows(const Request& request) {
  Collection collection;
  Gatherer gatherer(request, collection.notes);
  std::vector<Row> rows;
  for (const LocatedRun& located : gatherer.gather(runlog::Depth::row)) {
    rows.push_back(
        make_row(located.run, outcome_of(located.run, located.submitted), request.catalogues));
  }
  collection.runs = rows.size();
  for (const Project& project : request.projects) {
    add_planned(project.name,
                gatherer.ledgers().of(project.workspace / project.name, collection.notes).contents,
                request, rows);
  }
  collection.rows = aggregate(std::move(rows));
  return collection;
}

std::vector<ShownRun> find_runs(const Request& request, const std::string& name, Notes& notes) {
  // Both a name and an id are part of the run's name: other runs' logs need not be read. The id
  // finds the other repeats too.
  const auto parts = parse_run_name(name);
  Request narrowed = request;
  narrowed.selection.filters.push_back(parts ? parts->id : name);
  Gatherer gatherer(narrowed, notes);
  std::vector<LocatedRun> found = gatherer.gather(runlog::Depth::all);
  // Make a row of every repeat: the results show them together.
  std::vector<ShownRun> all;
  for (LocatedRun& located : found) {
    ShownRun run{.run = std::move(located.run)};
    run.outcome = outcome_of(run.run, located.submitted);
    run.row = make_row(run.run, run.outcome, request.catalogues);
    run.repeat = run.run.repeat;
    all.push_back(std::move(run));
  }
  // Show the runs that were asked for, each with the repeats of its point.
  std::vector<ShownRun> shown;
  for (const ShownRun& run : all) {
    if (run.run.run != name && run.run.id != name) continue;
    std::vector<Row> repeats;
    std::set<std::string> names;
    for (const ShownRun& other : all) {
      if (other.run.project != run.run.project || other.run.id != run.run.id) continue;
      repeats.push_back(other.row);
      names.insert(other.run.run);
    }
    ShownRun& added = shown.emplace_back(run);
    added.repeats = static_cast<int>(names.size());
    for (Row& row : aggregate(std::move(repeats))) {
      // Another device has a row of its own.
      if (!run.row.facts.device_name || row.facts.device_name == run.row.facts.device_name)
        added.aggregate = std::move(row);
    }
  }
  return shown;
}

}  // namespace tessera::collect
