// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/project/rebuild.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/process.h"
#include "lib/base/tree.h"
#include "lib/cluster/outcome.h"
#include "lib/jobs/live_jobs.h"
#include "lib/jobs/resolve_jobs.h"
#include "lib/jobs/run_folder.h"
#include "lib/ledger/ledger.h"
#include "lib/ledger/lock.h"
#include "lib/point/identity.h"
#include "lib/runlog/reader.h"

namespace tessera::submit {

namespace fs = std::filesystem;

namespace {

// One attempt, as its files tell.
struct Found {
  ledger::RunRef ref;
  std::string label;
  int repeats = 1;
  sweep::Point point;
  std::string user;
  std::string host;  // from which it was handed over; empty: not known
  std::string since_utc;
  std::string job;  // its id; empty: not known
  sweep::InJob in_job;
  std::optional<cluster::Outcome> outcome;  // of its footer
};

// When a file was written, and whether this user owns it.
struct FileStamp {
  std::string utc;
  bool mine = false;
};

// Returns nothing if there is no such file.
std::optional<FileStamp> stamp_of(const fs::path& path) {
  struct stat file{};
  if (::stat(path.c_str(), &file) != 0) return std::nullopt;
  std::tm parts{};
  ::gmtime_r(&file.st_mtim.tv_sec, &parts);
  return FileStamp{fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                               parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min,
                               parts.tm_sec, file.st_mtim.tv_nsec / 1000000),
                   file.st_uid == ::geteuid()};
}

// Rank 0's log of the attempt, of the last restart that has one; as far as it is this run's.
std::optional<runlog::Log> log_of(const fs::path& run_dir, int attempt) {
  std::optional<runlog::Log> found;
  int newest_restart = -1;
  for (const auto& entry : fs::directory_iterator(run_dir)) {
    runlog::LogFileName parts;
    if (!runlog::parse_log_file_name(entry.path().filename().string(), parts)) continue;
    if (parts.attempt != attempt || parts.rank != 0 || parts.restart <= newest_restart) continue;
    try {
      for (runlog::Log& log : runlog::read_log_file(entry.path(), runlog::Depth::row).logs) {
        if (log.origin.run != run_dir.filename() || log.origin.attempt != attempt) continue;
        found = std::move(log);
        newest_restart = parts.restart;
        break;
      }
    } catch (const Error&) {
      continue;  // as if it were not there
    }
  }
  return found;
}

// Returns the point in the log's header; nothing if it has none that can be read.
std::optional<sweep::Point> point_of(const runlog::Log& log) {
  if (log.point_json.empty()) return std::nullopt;
  try {
    return sweep::parse_point(parse_json(log.point_json, "point"));
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Throws std::string on what cannot be told.
Found read_attempt(const fs::path& run_dir, int attempt) {
  const std::string run = run_dir.filename().string();
  const auto spec = jobs::read_spec(run_dir, attempt);
  const auto log = log_of(run_dir, attempt);
  const auto point = spec ? std::optional(spec->point) : log ? point_of(*log) : std::nullopt;
  if (!point) throw std::string("neither specification nor log can be read");
  if (spec && (spec->run != run || spec->attempt != attempt))
    throw fmt::format("its specification is that of {} attempt {}", spec->run, spec->attempt);

  // The specification tells what the attempt is. The log takes its place if it is lost.
  Found found;
  found.ref = {.run = run,
               .id = spec ? spec->id : log->origin.id,
               .repeat = spec ? spec->repeat : log->origin.repeat,
               .attempt = attempt};
  found.point = *point;
  if (sweep::point_id(found.point) != found.ref.id)
    throw std::string("its point is not the one of its id");
  found.label = spec ? spec->label : log->facts.label.value_or("");
  found.repeats = spec ? spec->repeats : static_cast<int>(log->facts.repeats.value_or(1));
  found.repeats = std::max(found.repeats, found.ref.repeat);
  found.in_job =
      spec && spec->in_job ? *spec->in_job : sweep::InJob{.name = sweep::job_name(run, attempt)};

  // Find out whose it is: the surest source comes first.
  const auto stamp = stamp_of(jobs::spec_file(run_dir, attempt));
  const auto pid = read_file_if_exists(run_dir / fmt::format("run.{}.pid", attempt));
  std::string user_of_process;
  const auto process = pid ? parse_process(*pid, &user_of_process) : std::nullopt;
  if (spec && !spec->user.empty()) {
    found.user = spec->user;
  } else if (process && !user_of_process.empty()) {
    found.user = user_of_process;
  } else if (log && log->facts.user) {
    found.user = *log->facts.user;
  } else if (stamp && stamp->mine) {
    found.user = user_name();
  }
  if (found.user.empty()) throw std::string("nothing says whose it is");

  // The job is a process of some machine, or what the log has of a scheduler's job.
  if (process) {
    found.host = process->host;
    found.job = std::to_string(process->pid);
  } else if (log && !found.in_job.array) {
    // An element's log knows the job by a number that is not the element's.
    found.job = log->facts.job.value_or("");
  }
  // A copied file is younger than what it holds: the log's clock tells then.
  const std::string begun_utc = log ? log->facts.started_utc.value_or("") : "";
  found.since_utc = stamp ? stamp->utc : begun_utc;
  if (!begun_utc.empty()) found.since_utc = std::min(found.since_utc, begun_utc);
  if (log && log->footer) found.outcome = cluster::outcome_of_attempt(run_dir, attempt, {});
  return found;
}

// All attempts of this user; fills in what else is there.
std::vector<Found> read_runs(const fs::path& project_dir, const std::string& user,
                             Rebuilt& result) {
  const std::string prefix = project_dir.filename().string() + "--";
  std::vector<fs::path> folders;
  std::error_code fault;
  for (fs::directory_iterator it(project_dir, fault), end; !fault && it != end;
       it.increment(fault)) {
    if (it->path().filename().string().starts_with(prefix) && it->is_directory())
      folders.push_back(it->path());
  }
  if (fault) {
    throw Error(fault == std::errc::no_such_file_or_directory ? ExitCode::empty : ExitCode::io,
                project_dir.string(), fmt::format("cannot be read: {}", fault.message()),
                "check the project's name and --workspace");
  }
  std::ranges::sort(folders);
  // Read every attempt. Those of other users are only counted.
  std::vector<Found> all;
  for (const fs::path& folder : folders) {
    const std::string run = folder.filename().string();
    const std::vector<int> attempts = jobs::attempts_in(folder);
    if (attempts.empty())
      result.unreadable.push_back(fmt::format("{}: holds no attempt, left out", run));
    for (const int attempt : attempts) {
      try {
        Found found = read_attempt(folder, attempt);
        if (found.user == user) {
          all.push_back(std::move(found));
        } else {
          ++result.others;
        }
      } catch (const std::string& why) {
        result.unreadable.push_back(fmt::format("{} attempt {}: {}, left out", run, attempt, why));
      }
    }
  }
  std::ranges::stable_sort(all, {}, &Found::since_utc);
  return all;
}

// Points in the order of their first hand-over.
std::vector<ledger::Entry> plan_entries(const std::vector<Found>& attempts) {
  std::vector<ledger::PlannedPoint> points;
  std::map<std::string, std::size_t> known;
  for (const Found& found : attempts) {
    const std::string first = jobs::first_repeat(found.ref.run);
    const auto [at, added] = known.try_emplace(first, points.size());
    if (added) points.push_back({.id = found.ref.id, .run = first, .point = found.point});
    ledger::PlannedPoint& point = points[at->second];
    point.label = found.label;
    point.repeats = std::max(point.repeats, found.repeats);
  }
  std::vector<ledger::Entry> entries;
  for (const ledger::PlannedPoint& point : points) {
    if (entries.empty() || entries.back().points.size() == ledger::kPointsPerPlan)
      entries.emplace_back().op = ledger::Op::plan;
    entries.back().points.push_back(point);
  }
  return entries;
}

// Returns the intent of each job and, for each of its runs, what is known: accepted, final.
std::vector<ledger::Entry> job_entries(const std::vector<Found>& attempts) {
  struct OfJob {
    std::string since_utc;
    std::vector<const Found*> runs;
  };
  // Group the attempts by cluster and job name, in the order of their hand-over.
  std::vector<OfJob> jobs;
  std::map<std::pair<std::string, std::string>, std::size_t> known;  // cluster and name
  for (const Found& found : attempts) {
    const auto [at, added] =
        known.try_emplace({found.point.cluster, found.in_job.name}, jobs.size());
    if (added) jobs.push_back({.since_utc = found.since_utc, .runs = {}});
    jobs[at->second].runs.push_back(&found);
  }
  std::vector<ledger::Entry> entries;
  for (OfJob& job : jobs) {
    std::ranges::stable_sort(job.runs, {}, [](const Found* run) { return run->in_job.index; });
    ledger::Entry intent;
    intent.op = ledger::Op::intent;
    intent.utc = job.since_utc;
    intent.cluster = job.runs.front()->point.cluster;
    intent.name = job.runs.front()->in_job.name;
    intent.array = job.runs.front()->in_job.array;
    // Places are written only if they are not 0, 1, 2, ...
    bool in_order = true;
    for (const Found* run : job.runs) {
      in_order = in_order && run->in_job.index == intent.runs.size();
      intent.runs.push_back(run->ref);
      intent.places.push_back(run->in_job.index);
      intent.host = run->host;
    }
    if (in_order) intent.places.clear();
    entries.push_back(intent);
    for (const Found* run : job.runs) {
      ledger::Entry entry;
      entry.utc = run->since_utc;
      entry.host = run->host;
      entry.cluster = intent.cluster;
      entry.job = run->job;
      entry.runs = {run->ref};
      if (!run->job.empty()) {
        entry.op = ledger::Op::accepted;
        entries.push_back(entry);
      }
      if (!run->outcome) continue;
      entry.op = ledger::Op::final;
      entry.status = run->outcome->status;
      entry.ended_by = run->outcome->ended_by;
      entry.reason = run->outcome->reason;
      entry.build = run->outcome->build;
      entries.push_back(entry);
    }
  }
  return entries;
}

// "2026-11-29T12:41:11.204Z" as a part of a file's name.
std::string compact(std::string utc) {
  std::erase_if(utc, [](char c) { return c == '-' || c == ':'; });
  return utc;
}

// Links or copies a file into the folder. Error(io).
void keep_copy(const fs::path& file, const fs::path& folder) {
  make_directories(folder);
  const fs::path copy = folder / file.filename();
  if (::link(file.c_str(), copy.c_str()) == 0) return;
  std::error_code fault;  // not every file system has links
  fs::copy_file(file, copy, fault);
  if (fault) throw_errno(copy, "cannot be written", fault.value());
}

// The old files are kept before the new one takes the place of its own: whoever dies in between
// leaves the old ledger, or the new one.
void replace_ledger(const fs::path& project_dir, const std::string& user,
                    const std::vector<ledger::Entry>& entries, Rebuilt& result) {
  const fs::path state = project_dir / ".tessera";
  const fs::path stage = state / "rebuild";
  const fs::path folder = state / "ledger";
  const fs::path own = fmt::format("{}@{}.jsonl", user, host_name());
  std::error_code ignored;
  fs::remove_all(stage, ignored);
  // Write the new ledger aside.
  {
    ledger::Ledger fresh(stage, user, host_name());
    fresh.append(entries);
  }
  // Keep this user's old files, of all hosts.
  std::vector<fs::path> old;
  make_directories(folder);
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(user + "@") && name.ends_with(".jsonl")) old.push_back(entry.path());
  }
  if (!old.empty()) result.kept = state / ("ledger-" + compact(utc_now()));
  for (const fs::path& file : old) keep_copy(file, result.kept);
  // One rename puts the new file in place. The files of other hosts go after it.
  const fs::path fresh_file = stage / ".tessera/ledger" / own;
  if (::rename(fresh_file.c_str(), (folder / own).c_str()) != 0)
    throw_errno(folder / own, "cannot be written", errno);
  for (const fs::path& file : old) {
    if (file.filename() != own && ::unlink(file.c_str()) != 0)
      throw_errno(file, "cannot be moved", errno);
  }
  fs::remove_all(stage, ignored);
}

// Asks the clusters about the runs without an end and writes down what they say. Counts what stays
// open. A cluster that does not answer is added to result.silent.
void settle_all(const fs::path& project_dir, jobs::Schedulers& schedulers, const std::string& user,
                const std::function<void(const std::string&)>& note, Rebuilt& result) {
  const auto states = ledger::run_states(ledger::read_ledger(project_dir));
  std::map<std::string, std::vector<jobs::LiveJob>> by_cluster;
  for (jobs::LiveJob& live : jobs::live_jobs(project_dir, states, user))
    by_cluster[live.cluster].push_back(std::move(live));
  ledger::Ledger ledger(project_dir, user, host_name());
  const std::atomic<bool> interrupted{false};
  for (auto& [name, jobs] : by_cluster) {
    cluster::Scheduler* scheduler = schedulers.find(name);
    std::string why;
    if (scheduler == nullptr) {
      why = schedulers.why_not(name);
    } else {
      try {
        jobs = jobs::resolve_jobs(
            std::move(jobs), *scheduler, jobs::cancelled_in(states), interrupted,
            [&](const ledger::Entry& entry) { ledger.append(entry); },
            [&](const jobs::Ended& ended) { ledger.append(ended.entry); }, note);
      } catch (const Error& error) {
        if (error.code() != ExitCode::unreachable) throw;
        why = error.what();
      }
    }
    if (!why.empty()) result.silent.push_back(fmt::format("{}: {}", name, why));
  }
  for (const auto& [run, state] : ledger::run_states(ledger::read_ledger(project_dir))) {
    for (const ledger::AttemptState& attempt : state.attempts)
      result.open += attempt.user == user && attempt.last != ledger::Op::final ? 1 : 0;
  }
}

}  // namespace

Rebuilt rebuild_ledger(const fs::path& project_dir, jobs::Schedulers& schedulers, bool break_lock,
                       const std::function<void(const std::string&)>& note) {
  const std::string user = user_name();
  if (!fs::is_directory(project_dir)) {
    throw Error(ExitCode::empty, project_dir.string(), "no such project",
                "check its name and --workspace");
  }
  const ledger::ProjectLock lock(project_dir, user, break_lock);
  Rebuilt result;
  const std::vector<Found> attempts = read_runs(project_dir, user, result);
  if (attempts.empty()) {
    throw Error(ExitCode::empty, project_dir.string(), "holds no attempt of yours that can be read",
                "the ledger was left as it is");
  }
  std::vector<ledger::Entry> entries = plan_entries(attempts);
  for (const ledger::Entry& entry : entries) result.points += entry.points.size();
  std::ranges::move(job_entries(attempts), std::back_inserter(entries));
  std::set<std::string> runs;
  for (const Found& found : attempts) runs.insert(found.ref.run);
  result.runs = runs.size();
  result.attempts = attempts.size();
  // Until here an error leaves the ledger as it was.
  replace_ledger(project_dir, user, entries, result);
  for (const ledger::Damage& damage : ledger::read_ledger(project_dir).damage)
    result.damage.push_back(fmt::format("{}: {}", damage.where, damage.what));
  settle_all(project_dir, schedulers, user, note, result);
  return result;
}

}  // namespace tessera::submit
