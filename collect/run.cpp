// SPDX-License-Identifier: Apache-2.0
#include "collect/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "collect/readers/readers.h"
#include "collect/readers/tessera.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/text.h"
#include "lib/point/identity.h"

namespace tessera::collect {

namespace fs = std::filesystem;

namespace {

// The header's point, if there is one. False if it is not the point of the id that the log claims.
bool take_point(const RankLog& rank_log, std::optional<sweep::Point>& point, Notes& notes) {
  const runlog::Log& log = rank_log.log;
  if (log.point_json.empty()) return true;
  try {
    sweep::Point stated = sweep::parse_point(parse_json(log.point_json, "point of the header"));
    const std::string id = sweep::point_id(stated);
    if (id != log.origin.id) {
      notes.add(rank_log.path, fmt::format("the header's point has the id {}, not {} as it claims; "
                                           "left out",
                                           id, log.origin.id));
      return false;
    }
    point = std::move(stated);
    return true;
  } catch (const Error& error) {
    notes.add(rank_log.path, fmt::format("{}; left out", error.what()));
    return false;
  }
}

// What a file that gave no log is told to be.
std::string nothing_in(const runlog::LogFile& file) {
  if (file.newer_schema) return "written by a newer version; left out";
  if (file.damaged > 0) {
    return fmt::format("no whole record of a run log, {} damaged; left out", file.damaged);
  }
  return file.foreign > 0 ? "no record of a run log in it; left out" : "empty; left out";
}

// Reads a log file; nothing and a note if it cannot be read.
std::optional<runlog::LogFile> read_or_note(const Reader& reader, const fs::path& path,
                                            runlog::Depth depth, Notes& notes) {
  try {
    return reader.read(path, depth);
  } catch (const Error& error) {
    notes.add(path, error.without_where() + "; left out");
    return std::nullopt;
  }
}

// Notes what was left out of a file that has logs.
void note_damage(const runlog::LogFile& file, Notes& notes) {
  if (file.damaged > 0) {
    notes.add(file.path, counted(file.damaged, "damaged line") + " left out");
  }
  if (file.newer_schema) notes.add(file.path, "records of a newer version left out");
}

// Takes the label and, if the log's header gave none, the point from run.<attempt>.json.
void read_specification(const fs::path& path, Attempt& attempt, Notes& notes) {
  try {
    const Value root = parse_json(read_file(path), path.string());
    if (const Value* label = root.find("label")) attempt.label = as_text(*label);
    const Value* point = root.find("point");
    if (point != nullptr && !attempt.point) attempt.point = sweep::parse_point(*point);
  } catch (const Error& error) {
    notes.add(path, std::string("not read: ") + error.what());
  }
}

// Takes the process that run.<attempt>.pid names.
void read_process(const fs::path& path, Attempt& attempt, Notes& notes) {
  try {
    attempt.process = parse_process(read_file(path));
    attempt.process_known = attempt.process.has_value();
    if (!attempt.process_known) notes.add(path, "names no process; not used");
  } catch (const Error& error) {
    notes.add(path, std::string("not read: ") + error.what());
  }
}

// Adds one log to its attempt; rank 0's with a footer wins over one without.
void place(Attempt& attempt, RankLog rank_log) {
  if (rank_log.log.origin.rank != 0) {
    attempt.rank_logs.push_back(std::move(rank_log));
  } else if (!attempt.log || (!attempt.log->log.footer && rank_log.log.footer)) {
    attempt.log_file = rank_log.path;
    attempt.reader = rank_log.reader;
    attempt.log = std::move(rank_log);
  }
}

// Fills in the run's names that the folder did not give, and the repeat.
void name_run(Run& run, const runlog::Origin& origin) {
  if (run.id.empty()) run.id = origin.id;
  if (run.run.empty()) {
    run.run = origin.run;
    run.project = origin.project;
  }
  run.repeat = origin.repeat;
}

using StartKey = std::pair<int, int>;  // attempt, restart

// Rank 0's log and those of the others, by start. Their names say that they are our trainer's.
void read_attempt_logs(const AttemptFiles& files, runlog::Depth depth, Run& run,
                       std::map<StartKey, Attempt>& starts, Notes& notes) {
  for (const fs::path& path : files.logs) {
    runlog::LogFileName name;
    runlog::parse_log_file_name(path.filename().string(), name);
    const Reader& reader = tessera_reader();
    const auto file = read_or_note(reader, path, depth, notes);
    // Rank 0's file belongs to the start even if nothing in it can be read.
    if (name.rank == 0) {
      Attempt& start = starts[{name.attempt, name.restart}];
      start.log_file = path;
      start.reader = &reader;
    }
    if (!file) continue;
    if (file->logs.empty()) {
      // A trainer makes its file before its first record: an empty one is no fault of the file.
      if (file->damaged + file->foreign > 0 || file->newer_schema)
        notes.add(path, nothing_in(*file));
      continue;
    }
    note_damage(*file, notes);
    for (const runlog::Log& log : file->logs) {
      // Records of another id belong to another point.
      if (!run.id.empty() && log.origin.id != run.id) {
        notes.add(path, fmt::format("holds records of {}, not of {}; those left out", log.origin.id,
                                    run.id));
        continue;
      }
      RankLog rank_log{
          .path = path, .log = log, .faults = runlog::faults(*file, log), .reader = &reader};
      Attempt& attempt = starts[{log.origin.attempt, log.origin.restart}];
      if (!take_point(rank_log, attempt.point, notes)) {
        starts.erase({log.origin.attempt, log.origin.restart});
        continue;
      }
      name_run(run, log.origin);
      place(attempt, std::move(rank_log));
    }
  }
}

}  // namespace

std::optional<Run> read_run(const RunFiles& files, Notes& notes, runlog::Depth depth) {
  Run run;
  run.folder = files.folder;
  // The folder's name says which run it is, if it has the form of a run's name.
  const std::string folder_name = files.name();
  if (const auto name = parse_run_name(folder_name)) {
    run.project = name->project;
    run.run = folder_name;
    run.id = name->id;
    run.repeat = name->repeat;
  }
  std::map<StartKey, Attempt> starts;
  for (const AttemptFiles& attempt_files : files.attempts) {
    const std::size_t before = starts.size();
    read_attempt_logs(attempt_files, depth, run, starts, notes);
    const bool rejected = !attempt_files.logs.empty() && starts.size() == before;
    if (rejected) continue;
    // Specification and process belong to the last restart of their attempt.
    const auto latest = std::ranges::find_if(
        starts.rbegin(), starts.rend(),
        [&](const auto& start) { return start.first.first == attempt_files.attempt; });
    Attempt& attempt =
        latest != starts.rend() ? latest->second : starts[{attempt_files.attempt, 0}];
    attempt.specification = attempt_files.specification;
    if (attempt_files.specification) read_specification(*attempt.specification, attempt, notes);
    if (attempt_files.pid) read_process(*attempt_files.pid, attempt, notes);
  }
  for (auto& [key, attempt] : starts) {
    std::tie(attempt.attempt, attempt.restart) = key;
    run.attempts.push_back(std::move(attempt));
  }
  if (run.attempts.empty() || run.id.empty()) return std::nullopt;
  return run;
}

std::vector<Run> read_loose_logs(const std::vector<fs::path>& files, Notes& notes) {
  std::vector<Run> runs;
  std::map<std::tuple<std::string, std::string, int>, std::size_t> by_name;
  for (const fs::path& path : files) {
    // The head of the file decides which program wrote it.
    const Reader* recognised = reader_of(path);
    const Reader& reader = recognised != nullptr ? *recognised : tessera_reader();
    const auto file = read_or_note(reader, path, runlog::Depth::row, notes);
    if (!file) continue;
    if (file->logs.empty()) {
      notes.add(path, nothing_in(*file));
      continue;
    }
    note_damage(*file, notes);
    for (const runlog::Log& log : file->logs) {
      RankLog rank_log{
          .path = path, .log = log, .faults = runlog::faults(*file, log), .reader = &reader};
      std::optional<sweep::Point> point;
      if (!take_point(rank_log, point, notes)) continue;
      // Records without a header or footer do not name their run: they stay with their file.
      const std::string run_name =
          log.origin.run.empty() ? "file " + path.string() : log.origin.run;
      // The logs of a run may lie in several files.
      const auto [at, added] =
          by_name.try_emplace({run_name, log.origin.id, log.origin.repeat}, runs.size());
      if (added) {
        runs.emplace_back().folder = path.parent_path();
        name_run(runs.back(), log.origin);
      }
      Run& run = runs[at->second];
      auto attempt = std::ranges::find_if(run.attempts, [&](const Attempt& known) {
        return known.attempt == log.origin.attempt && known.restart == log.origin.restart;
      });
      if (attempt == run.attempts.end()) {
        attempt = run.attempts.insert(run.attempts.end(), Attempt{});
        attempt->attempt = log.origin.attempt;
        attempt->restart = log.origin.restart;
      }
      if (point) attempt->point = std::move(point);
      place(*attempt, std::move(rank_log));
    }
  }
  for (Run& run : runs) {
    std::ranges::sort(run.attempts, {}, [](const Attempt& attempt) {
      return StartKey{attempt.attempt, attempt.restart};
    });
  }
  return runs;
}

}  // namespace tessera::collect
