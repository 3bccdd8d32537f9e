// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/cli/project_verbs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <thread>

#include "apps/submit/cli/submission_flags.h"
#include "apps/submit/cli/submit_run.h"
#include "apps/submit/plan/plan.h"
#include "apps/submit/project/rebuild.h"
#include "apps/submit/project/rerun.h"
#include "apps/submit/project/run_output.h"
#include "apps/submit/project/status.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/process.h"
#include "lib/base/text.h"
#include "lib/cluster/outcome.h"
#include "lib/ledger/lock.h"
#include "lib/ledger/state.h"
#include "lib/point/identity.h"

namespace tessera::apps {

namespace fs = std::filesystem;

namespace {

// What each of these verbs is told: "[PROJECT] [RUN...]" and where the project is.
struct ProjectRequest {
  std::string project;
  std::string workspace;           // empty: as it is remembered
  std::vector<std::string> names;  // as written
};

struct StatusRequest : ProjectRequest {
  bool all_rows = false;
  bool watch = false;
  bool offline = false;
};

struct LogsRequest : ProjectRequest {
  bool follow = false;
  int attempt = 0;  // 0: the newest
};

struct RerunRequest : ProjectRequest {
  SubmitRequest submit;
};

struct RebuildRequest : ProjectRequest {
  bool break_lock = false;
};

// The project and the runs that `request.names` mean. With --project, or if the first name holds
// the "--" of run names, all are runs (of the project before it); without a name the project is the
// last one used. Error(usage).
struct VerbTarget {
  std::string project;
  std::vector<std::string> runs;  // as written
};

VerbTarget target_of(const ProjectRequest& request, const char* verb) {
  VerbTarget target{.project = request.project, .runs = request.names};
  if (target.project.empty() && !target.runs.empty()) {
    const std::string& first = target.runs.front();
    const std::size_t end = first.find("--");
    target.project = first.substr(0, end);
    if (end == std::string::npos) target.runs.erase(target.runs.begin());
  } else if (target.project.empty()) {
    const auto last = ledger::last_project();
    if (!last)
      throw Error(ExitCode::usage, verb, "which project?", fmt::format("write {} PROJECT", verb));
    target.project = *last;
  }
  if (const std::string fault = sweep::project_fault(target.project); !fault.empty()) {
    throw Error(ExitCode::usage, verb, fmt::format("project '{}' {}", target.project, fault),
                "the first name is a project's");
  }
  return target;
}

// ---- status and cancel ----

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
  fmt::print("{}: {}: {}", project, counted(status.runs.size(), "run"), line);
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

// Prints the status once or, with --watch, until all runs have ended.
int run_status(const StatusRequest& request) {
  const VerbTarget target = target_of(request, "submit status");
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
    // No cluster is asked more often than it allows.
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

int run_cancel(const ProjectRequest& request) {
  const auto& [project, runs] = target_of(request, "submit cancel");
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

// ---- logs ----

constexpr std::chrono::seconds kFirstOutput{1};  // between two looks for it

void note(const std::string& text) {
  fmt::print(stderr, "submit: {}\n", text);
}

// Writes to stdout at once. Error(io) if that fails.
void print_bytes(std::string_view bytes) {
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size() &&
                       std::fflush(stdout) == 0;
  if (!written) throw_errno("stdout", "cannot be written", errno);
}

// Whoever follows a submission that has just begun waits for its first run.
submit::RunOutput choose(const LogsRequest& request, const fs::path& project_dir,
                         jobs::Schedulers& schedulers, const std::string& text) {
  while (true) {
    try {
      return submit::choose_output(project_dir, schedulers, text, request.attempt);
    } catch (const Error& error) {
      const bool may_come = request.follow && text.empty() && error.code() == ExitCode::empty &&
                            ledger::lock_holder(project_dir).has_value();
      if (!may_come) throw;
    }
    std::this_thread::sleep_for(kFirstOutput);
  }
}

// Prints the output of one run, on stdout. Remarks go to stderr.
int run_logs(const LogsRequest& request) {
  const VerbTarget target = target_of(request, "submit logs");
  if (target.runs.size() > 1)
    throw Error(ExitCode::usage, target.runs[1], "logs takes one run", "leave it out");
  const std::string& project = target.project;
  const fs::path project_dir = ledger::workspace_to_read(project, request.workspace) / project;
  jobs::Schedulers schedulers(project_dir, user_name());
  const submit::RunOutput output =
      choose(request, project_dir, schedulers, target.runs.empty() ? "" : target.runs.front());
  if (!output.why.empty())
    note(fmt::format("{} attempt {}: {}", output.run, output.attempt, output.why));
  if (request.follow) {
    submit::follow_output(project_dir, schedulers, output, print_bytes, note);
  } else {
    submit::print_output(project_dir, schedulers, output, print_bytes);
  }
  if (cluster::has_log(output.run_dir, output.attempt))
    note(fmt::format("its records and result: collect show {}", output.run));
  return 0;
}

// ---- rerun and rebuild ----

int run_rerun(const RerunRequest& request) {
  const VerbTarget target = target_of(request, "submit rerun");
  const std::string& project = target.project;
  if (target.runs.empty()) {
    throw Error(ExitCode::usage, "submit rerun", "which runs?",
                fmt::format("write submit rerun {} RUN...", project));
  }
  const fs::path workspace = ledger::resolve_workspace(project, request.workspace);
  submit::Rerun rerun = submit::rerun_of(workspace / project, target.runs);
  jobs::Schedulers schedulers(workspace / project, user_name());
  // The named runs become a plan, each on the cluster of its point.
  Plan plan;
  plan.project = project;
  plan.expansion = std::move(rerun.plan);
  plan.catalogue = hardware::load_catalogue(request.submit.gpu_catalogue);
  for (const sweep::Planned& each : plan.expansion.points) {
    const std::string& name = each.point.cluster;
    if (plan.clusters.contains(name)) continue;
    const cluster::Scheduler* scheduler = schedulers.find(name);
    if (scheduler == nullptr) throw Error(ExitCode::refused, name, schedulers.why_not(name));
    plan.clusters.emplace(name, scheduler->cluster());
  }
  // If the trainer cannot run one of them, none is started.
  find_capabilities(plan);
  drop_incapable(plan, Judged::there);
  if (!plan.expansion.dropped.empty())
    throw Error(ExitCode::refused, "submit rerun", plan.expansion.dropped.front().detail);
  // From here on it is a submit of these runs alone.
  SubmitRequest again = request.submit;
  again.project = project;
  again.workspace = workspace.string();
  again.named = std::move(rerun.named);
  return run_plan(again, plan);
}

int run_rebuild(const RebuildRequest& request) {
  const VerbTarget target = target_of(request, "submit rebuild");
  if (!target.runs.empty())
    throw Error(ExitCode::usage, target.runs.front(), "rebuild takes one project", "leave it out");
  const std::string& project = target.project;
  const fs::path workspace = ledger::resolve_workspace(project, request.workspace);
  const fs::path project_dir = workspace / project;
  jobs::Schedulers schedulers(project_dir, user_name());
  const submit::Rebuilt rebuilt =
      submit::rebuild_ledger(project_dir, schedulers, request.break_lock, note);
  ledger::remember_project(project, workspace);
  // What was left out goes to stderr, the result to stdout.
  for (const std::string& line : rebuilt.unreadable) note(line);
  for (const std::string& line : rebuilt.silent)
    note(fmt::format("not asked: {}; the next submit does", line));
  for (const std::string& line : rebuilt.damage)
    note(fmt::format("another user's to rebuild: {}", line));
  fmt::print("{}: ledger made anew: {}, {}, {}", project, counted(rebuilt.points, "point"),
             counted(rebuilt.runs, "run"), counted(rebuilt.attempts, "attempt"));
  if (rebuilt.open > 0) fmt::print(", {} not ended", rebuilt.open);
  if (rebuilt.others > 0)
    fmt::print("; {} of other users left to theirs", counted(rebuilt.others, "attempt"));
  fmt::print("\n");
  if (!rebuilt.kept.empty()) fmt::print("Old files: {}\n", rebuilt.kept.string());
  fmt::print(
      "Not to be had back: points that were dropped or never handed over (the next submit of their "
      "sweep\nnames them again), who cancelled what, and how long jobs waited.\n");
  return 0;
}

// ---- what their command lines take ----

const char* const kProjectHelp = "A project; by default the last one used";

// Declares the arguments, --project and --workspace.
void declare_project(cli::Command& verb, ProjectRequest& request, const std::string& arguments,
                     const std::string& help) {
  verb.add_option("names", request.names, help)->type_name(arguments);
  verb.add_option("--project", request.project,
                  arguments.find("RUN") == std::string::npos
                      ? "The project, in place of the argument"
                      : "The project; every argument is then a run of it")
      ->type_name("NAME");
  declare_workspace(verb, request.workspace);
}

void add_status(cli::Command& submit) {
  const auto request = std::make_shared<StatusRequest>();
  cli::Command& status = submit.add_verb("status", "Show where the runs of a project stand");
  status.add_flag("--all", request->all_rows, "List runs that are ok, too");
  status.add_flag("--watch", request->watch, "Print it again until all runs have ended");
  status.add_flag("--offline", request->offline, "Ask no cluster");
  declare_project(status, *request, "[PROJECT]", kProjectHelp);
  status.examples = {{"submit status", "where the last project stands"},
                     {"submit status mpt-h100 --watch", "watch it until all runs have ended"}};
  status.exit_codes = {{ExitCode::ok, "printed, however the runs stand"},
                       {ExitCode::empty, "nothing was submitted under this name"},
                       {ExitCode::conflict, "the ledger is damaged; see submit rebuild"}};
  status.action = [request] { return run_status(*request); };
}

void add_cancel(cli::Command& submit) {
  const auto request = std::make_shared<ProjectRequest>();
  cli::Command& cancel = submit.add_verb("cancel", "End the runs of a project, or the named ones");
  declare_project(cancel, *request, "[PROJECT] [RUN...]",
                  "A project, by default the last one used, and runs of it, by default all: a "
                  "run's name, its id, or a piece that only one name has");
  cancel.examples = {{"submit cancel", "end the last project: start no more, tell all runs to end"},
                     {"submit cancel mpt-h100 1f0c9a3b77de", "end one run by its id"}};
  cancel.exit_codes = {{ExitCode::ok, "told to end, or nothing of yours runs"},
                       {ExitCode::empty, "no such project or run"},
                       {ExitCode::refused, "another user's run, or one on another machine"},
                       {ExitCode::conflict, "the ledger is damaged; see submit rebuild"},
                       {ExitCode::unreachable, "a cluster does not answer; nothing was cancelled"}};
  cancel.action = [request] { return run_cancel(*request); };
}

void add_logs(cli::Command& submit) {
  const auto request = std::make_shared<LogsRequest>();
  const auto attempt = std::make_shared<std::string>();
  cli::Command& logs = submit.add_verb("logs", "Print the output of a run");
  logs.add_flag("-f,--follow", request->follow, "Go on until the run has ended");
  logs.add_option("--attempt", *attempt, "Print this attempt; by default the newest")
      ->type_name("N");
  declare_project(
      logs, *request, "[PROJECT] [RUN]",
      "A project, by default the last one used, and a run of it, by default the one "
      "at work or else the newest: its name, its id, or a piece that only one name has");
  logs.examples = {{"submit logs -f", "follow the run at work"},
                   {"submit logs mpt-h100 1f0c9a3b77de --attempt 1", "an older attempt of a run"}};
  logs.exit_codes = {{ExitCode::empty, "no such project or run, or it has no output yet"},
                     {ExitCode::conflict, "the ledger is damaged; see submit rebuild"},
                     {ExitCode::unreachable, "the cluster does not answer"}};
  logs.action = [request, attempt] {
    request->attempt = positive_count(*attempt, "--attempt").value_or(0);
    return run_logs(*request);
  };
}

void add_rerun(cli::Command& submit) {
  const auto request = std::make_shared<RerunRequest>();
  const auto time = std::make_shared<std::string>();
  cli::Command& rerun = submit.add_verb("rerun", "Start the named runs again, however they ended");
  declare_handover(rerun, request->submit, *time);
  declare_project(rerun, *request, "[PROJECT] RUN...",
                  "A project, by default the last one used, and runs of it: a run's name, its id, "
                  "or a piece that only one name has");
  rerun.examples = {{"submit rerun 1f0c9a3b77de --profile", "measure each operation of a run"}};
  rerun.exit_codes = {{ExitCode::empty, "no such project or run"},
                      {ExitCode::refused, "the run has not ended, or the trainer cannot run it"},
                      {ExitCode::locked, "another submit works on this project"},
                      {ExitCode::conflict, "ledger and run contradict each other"},
                      {ExitCode::runs_failed, "a run did not end ok"},
                      {ExitCode::unreachable, "a cluster does not answer or refused the job"},
                      {ExitCode::interrupted, "interrupted"}};
  rerun.action = [request, time] {
    request->submit.time_s = run_time_s(*time);
    return run_rerun(*request);
  };
}

void add_rebuild(cli::Command& submit) {
  const auto request = std::make_shared<RebuildRequest>();
  cli::Command& rebuild =
      submit.add_verb("rebuild", "Make a lost or damaged ledger anew from what the runs left");
  declare_break_lock(rebuild, request->break_lock);
  declare_project(rebuild, *request, "[PROJECT]", kProjectHelp);
  rebuild.examples = {
      {"submit rebuild mpt-h100", "the old files of the ledger are kept beside it"}};
  rebuild.exit_codes = {{ExitCode::empty, "no such project, or no run of yours in it"},
                        {ExitCode::locked, "another submit works on this project"}};
  rebuild.action = [request] { return run_rebuild(*request); };
}

}  // namespace

void add_project_verbs(cli::Command& submit) {
  add_status(submit);
  add_logs(submit);
  add_cancel(submit);
  add_rerun(submit);
  add_rebuild(submit);
}

}  // namespace tessera::apps
