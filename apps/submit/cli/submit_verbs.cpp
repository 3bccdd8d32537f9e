#include "apps/submit/cli/submit_verbs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <thread>

#include "apps/submit/cli/verb_names.h"
#include "apps/submit/project/status.h"
#include "lib/base/error.h"
#include "lib/base/process.h"
#include "lib/ledger/state.h"

namespace tessera::apps {

namespace fs = std::filesystem;

namespace {

// Prints it; false as long as runs have not ended.
bool print_status(const std::string& project, const fs::path& project_dir,
                  const submit::ProjectStatus& status, bool all_rows) {
  for (const std::string& damage : status.damage) fmt::print(stderr, "submit: {}\n", damage);
  for (const std::string& silent : status.silent)
    fmt::print(stderr, "submit: not asked: {}\n", silent);
  std::map<runlog::Status, int> counts;
  for (const submit::RunStatus& run : status.runs) ++counts[run.status];
  std::string line;
  for (const auto& [state, name] : Names<runlog::Status>::table) {
    if (counts[state] > 0)
      line += fmt::format("{}{} {}", line.empty() ? "" : ", ", counts[state], name);
  }
  fmt::print("{}: {} run{}: {}", project, status.runs.size(), status.runs.size() == 1 ? "" : "s",
             line);
  if (status.dropped > 0) fmt::print("; {} dropped when planned", status.dropped);
  fmt::print("\n");
  bool hidden = false;
  for (const submit::RunStatus& run : status.runs) {
    if (run.status == runlog::Status::ok && !all_rows) {
      hidden = true;
      continue;
    }
    fmt::print("{:<10} {}{}{}{}\n", to_text(run.status), run.run,
               run.attempt > 1 ? fmt::format("  attempt {}", run.attempt) : "",
               run.job.empty() ? "" : fmt::format("  job {}", run.job),
               run.reason.empty() ? "" : ": " + run.reason);
  }
  if (hidden) fmt::print("Those that are ok are listed with --all.\n");
  fmt::print("Runs: {}\n", project_dir.string());
  // What could not be asked may run.
  return status.silent.empty() &&
         counts[runlog::Status::running] + counts[runlog::Status::pending] == 0;
}

}  // namespace

int run_status(const SubmitRequest& request) {
  const VerbTarget target = target_of(request);
  if (!target.runs.empty()) {
    throw Error(ExitCode::usage, target.runs.front(), "status takes one project", "leave it out");
  }
  const std::string& project = target.project;
  const fs::path project_dir = ledger::workspace_to_read(project, request.workspace) / project;
  jobs::Schedulers schedulers(project_dir, user_name());
  while (true) {
    const submit::ProjectStatus status =
        submit::project_status(project_dir, schedulers, !request.offline);
    const bool terminal = ::isatty(STDOUT_FILENO) == 1;
    if (request.watch && terminal) fmt::print("\x1b[H\x1b[2J");
    const bool ended = print_status(project, project_dir, status, request.all_rows);
    if (!request.watch || ended) return 0;
    double pause_s = 2;
    for (const submit::RunStatus& run : status.runs) {
      if (run.status != runlog::Status::running && run.status != runlog::Status::pending) continue;
      if (const auto* scheduler = schedulers.find(run.cluster))
        pause_s = std::max(pause_s, scheduler->poll_s());
    }
    if (!terminal) fmt::print("\n");
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
  }
}

int run_cancel(const SubmitRequest& request) {
  const auto& [project, runs] = target_of(request);
  const fs::path project_dir = ledger::resolve_workspace(project, request.workspace) / project;
  jobs::Schedulers schedulers(project_dir, user_name());
  const submit::Cancellation done = submit::cancel_runs(project_dir, schedulers, runs);
  if (done.submit != 0)
    fmt::print("told to start no more: the submit at work, pid {}\n", done.submit);
  for (const std::string& run : done.runs) fmt::print("told to end: {}\n", run);
  if (done.runs.empty() && done.submit == 0) fmt::print("{}: nothing of yours runs\n", project);
  if (!done.submit_not_told.empty()) {
    throw Error(ExitCode::refused, project,
                fmt::format("a submit goes on: {}", done.submit_not_told), "cancel it there");
  }
  return 0;
}

}  // namespace tessera::apps
