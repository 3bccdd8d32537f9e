#include "apps/submit/cli/run_verbs.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "apps/submit/cli/submit_run.h"
#include "apps/submit/cli/verb_names.h"
#include "apps/submit/plan/plan.h"
#include "apps/submit/project/rebuild.h"
#include "apps/submit/project/rerun.h"
#include "apps/submit/project/run_output.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/process.h"
#include "lib/cluster/outcome.h"
#include "lib/ledger/lock.h"
#include "lib/ledger/state.h"

namespace tessera::apps {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::seconds kFirstOutput{1};  // between two looks for it

void note(const std::string& text) {
  fmt::print(stderr, "submit: {}\n", text);
}

void print_bytes(std::string_view bytes) {
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size() &&
                       std::fflush(stdout) == 0;
  if (!written) throw_errno("stdout", "cannot be written", errno);
}

// Whoever follows a submission that has just begun waits for its first run.
submit::RunOutput choose(const SubmitRequest& request, const fs::path& project_dir,
                         jobs::Schedulers& schedulers, const std::string& text) {
  while (true) {
    try {
      return submit::choose_output(project_dir, schedulers, text, request.output_attempt);
    } catch (const Error& error) {
      const bool may_come = request.follow && text.empty() && error.code() == ExitCode::empty &&
                            ledger::lock_holder(project_dir).has_value();
      if (!may_come) throw;
    }
    std::this_thread::sleep_for(kFirstOutput);
  }
}

std::string count(std::size_t number, const char* what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

}  // namespace

int run_logs(const SubmitRequest& request) {
  const VerbTarget target = target_of(request);
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

int run_rerun(const SubmitRequest& request) {
  const VerbTarget target = target_of(request);
  const std::string& project = target.project;
  if (target.runs.empty()) {
    throw Error(ExitCode::usage, "submit rerun", "which runs?",
                fmt::format("write submit rerun {} RUN...", project));
  }
  const fs::path workspace = ledger::resolve_workspace(project, request.workspace);
  submit::Rerun rerun = submit::rerun_of(workspace / project, target.runs);
  jobs::Schedulers schedulers(workspace / project, user_name());
  Plan plan;
  plan.project = project;
  plan.expansion = std::move(rerun.plan);
  plan.catalogue = hardware::load_catalogue(request.gpu_catalogue);
  for (const sweep::Planned& each : plan.expansion.points) {
    const std::string& name = each.point.cluster;
    if (plan.clusters.contains(name)) continue;
    const cluster::Scheduler* scheduler = schedulers.find(name);
    if (scheduler == nullptr) throw Error(ExitCode::refused, name, schedulers.why_not(name));
    plan.clusters.emplace(name, scheduler->cluster());
  }
  find_capabilities(plan);
  drop_incapable(plan, Judged::there);
  if (!plan.expansion.dropped.empty())
    throw Error(ExitCode::refused, "submit rerun", plan.expansion.dropped.front().detail);
  SubmitRequest again = request;
  again.project = project;
  again.workspace = workspace.string();
  again.named = std::move(rerun.named);
  return run_plan(again, plan);
}

int run_rebuild(const SubmitRequest& request) {
  const VerbTarget target = target_of(request);
  if (!target.runs.empty())
    throw Error(ExitCode::usage, target.runs.front(), "rebuild takes one project", "leave it out");
  const std::string& project = target.project;
  const fs::path workspace = ledger::resolve_workspace(project, request.workspace);
  const fs::path project_dir = workspace / project;
  jobs::Schedulers schedulers(project_dir, user_name());
  const submit::Rebuilt rebuilt =
      submit::rebuild_ledger(project_dir, schedulers, request.break_lock, note);
  ledger::remember_project(project, workspace);
  for (const std::string& line : rebuilt.unreadable) note(line);
  for (const std::string& line : rebuilt.silent)
    note(fmt::format("not asked: {}; the next submit does", line));
  for (const std::string& line : rebuilt.damage)
    note(fmt::format("another user's to rebuild: {}", line));
  fmt::print("{}: ledger made anew: {}, {}, {}", project, count(rebuilt.points, "point"),
             count(rebuilt.runs, "run"), count(rebuilt.attempts, "attempt"));
  if (rebuilt.open > 0) fmt::print(", {} not ended", rebuilt.open);
  if (rebuilt.others > 0)
    fmt::print("; {} of other users left to theirs", count(rebuilt.others, "attempt"));
  fmt::print("\n");
  if (!rebuilt.kept.empty()) fmt::print("Old files: {}\n", rebuilt.kept.string());
  fmt::print(
      "Not to be had back: points that were dropped or never handed over (the next submit of their "
      "sweep\nnames them again), who cancelled what, and how long jobs waited.\n");
  return 0;
}

}  // namespace tessera::apps
