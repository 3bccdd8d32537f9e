#include "apps/submit_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "apps/progress.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/names.h"
#include "lib/ledger/state.h"
#include "lib/runlog/footer.h"
#include "lib/submit/status.h"
#include "lib/submit/submit_local.h"
#include "lib/sweep/identity.h"

namespace tessera::apps {

namespace fs = std::filesystem;

namespace {

// Set by the handler: the running points are told to end, no more are started.
std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void handle_interrupts() {
  struct sigaction action{};
  action.sa_handler = [](int) { g_interrupted = true; };
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGHUP, &action, nullptr);
}

// "3 not ok before (2 oom, 1 start-fail)", or "".
std::string not_ok_text(const std::map<runlog::Status, int>& counts) {
  int sum = 0;
  std::vector<std::string> parts;
  for (const auto& [status, count] : counts) {
    sum += count;
    parts.push_back(fmt::format("{} {}", count, to_text(status)));
  }
  return sum == 0 ? "" : fmt::format("{} not ok before ({})", sum, fmt::join(parts, ", "));
}

void print_selection(const std::string& project, const std::vector<submit::Choice>& choices,
                     int adopted, std::size_t dropped, const std::string& only) {
  std::map<submit::Verdict, int> counts;
  std::map<runlog::Status, int> not_ok;
  for (const submit::Choice& choice : choices) {
    const bool failed_before =
        choice.verdict == submit::Verdict::done && choice.status != runlog::Status::ok;
    if (failed_before) {
      ++not_ok[choice.status.value_or(runlog::Status::unknown)];
    } else {
      ++counts[choice.verdict];
    }
  }
  std::string line = fmt::format("{}: {} run{}, {} to start", project, choices.size(),
                                 choices.size() == 1 ? "" : "s", counts[submit::Verdict::start]);
  const auto add = [&](int count, const std::string& what) {
    if (count > 0) line += fmt::format(", {} {}", count, what);
  };
  add(counts[submit::Verdict::done], "done before");
  if (!not_ok.empty()) line += ", " + not_ok_text(not_ok);
  add(counts[submit::Verdict::unselected], "not selected by --only " + only);
  add(adopted, "running already (waited for)");
  add(counts[submit::Verdict::others], "of another user (not touched)");
  if (dropped > 0) line += fmt::format("; {} point{} dropped", dropped, dropped == 1 ? "" : "s");
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

// What the runs came to, for the closing line.
std::string summary(const submit::SubmitReport& sum, const std::string& only) {
  std::string text = fmt::format("{} ok, {} not ok", sum.ok, sum.failed);
  const auto add = [&](int count, const std::string& what) {
    if (count > 0) text += fmt::format(", {} {}", count, what);
  };
  add(sum.cancelled, "cancelled");
  add(sum.not_started, "not started");
  add(sum.ok_before, "done before");
  if (!sum.not_ok_before.empty()) text += ", " + not_ok_text(sum.not_ok_before);
  add(sum.unselected, "not selected by --only " + only);
  add(sum.others, "of another user");
  return text;
}

// One line if not all that was asked for is ok now, and what to do about it.
void require_all_ok(const submit::SubmitReport& sum, const std::string& project) {
  int before = 0;
  for (const auto& [status, count] : sum.not_ok_before) before += count;
  const int failed = sum.failed + before;
  if (failed > 0) {
    throw Error(
        ExitCode::runs_failed, "",
        fmt::format("{} run{} did not end ok{}", failed, failed == 1 ? "" : "s",
                    sum.failed > 0 ? "" : ", before"),
        fmt::format(
            "see submit status {}, or run them again with --only failed (cut short: --only all)",
            project));
  }
  if (sum.cancelled > 0) {
    throw Error(
        ExitCode::runs_failed, "",
        fmt::format("{} run{} cancelled", sum.cancelled, sum.cancelled == 1 ? " was" : "s were"),
        "the same command runs what was cancelled again");
  }
}

// ": 12345 tokens/s, 2.1s", with the reason where it did not end ok.
std::string details(const cluster::Outcome& outcome) {
  std::vector<std::string> parts;
  if (!outcome.reason.empty()) parts.push_back(outcome.reason);
  if (outcome.tokens_per_s > 0)
    parts.push_back(fmt::format("{:.0f} tokens/s", outcome.tokens_per_s));
  if (outcome.wall_s > 0) parts.push_back(duration_text(outcome.wall_s));
  if (outcome.cpu_share < runlog::kBusyShare)
    parts.push_back(fmt::format("its threads waited for a CPU {:.0f} % of the time",
                                100 * (1 - outcome.cpu_share)));
  return parts.empty() ? "" : fmt::format(": {}", fmt::join(parts, ", "));
}

std::string verb_project(const SubmitRequest& request) {
  std::string named = request.names.empty() ? request.project : request.names.front();
  if (!named.empty() || !request.names.empty()) {
    if (const std::string fault = sweep::project_fault(named); !fault.empty()) {
      throw Error(ExitCode::usage, fmt::format("submit {}", request.verb),
                  fmt::format("project '{}' {}", named, fault),
                  "submit status and cancel take a project's name");
    }
    return named;
  }
  if (const auto last = ledger::last_project()) return *last;
  throw Error(ExitCode::usage, fmt::format("submit {}", request.verb), "which project?",
              fmt::format("write submit {} PROJECT", request.verb));
}

// Of one cluster: its share of the plan.
sweep::Expansion share_of(const Plan& plan, const std::string& cluster, bool with_dropped) {
  sweep::Expansion share;
  for (const sweep::Planned& point : plan.expansion.points) {
    if (point.point.cluster == cluster) share.points.push_back(point);
  }
  if (with_dropped) share.dropped = plan.expansion.dropped;
  return share;
}

std::optional<submit::Capabilities> capabilities_of(const Plan& plan, const std::string& cluster) {
  const auto found = plan.capabilities.find(cluster);
  return found == plan.capabilities.end() ? std::nullopt : std::optional(found->second);
}

void add(submit::SubmitReport& sum, const submit::SubmitReport& report) {
  sum.started += report.started;
  sum.ok += report.ok;
  sum.failed += report.failed;
  sum.cancelled += report.cancelled;
  sum.ok_before += report.ok_before;
  for (const auto& [status, count] : report.not_ok_before) sum.not_ok_before[status] += count;
  sum.unselected += report.unselected;
  sum.others += report.others;
  sum.not_started += report.not_started;
}

}  // namespace

int run_plan(const SubmitRequest& request, const Plan& plan) {
  require_runnable(request, plan);
  const auto only = from_text<submit::Only>(request.only);
  if (!only) {
    throw Error(ExitCode::usage, "--only", fmt::format("unknown value '{}'", request.only),
                suggestion(request.only, all_names<submit::Only>()));
  }
  handle_interrupts();
  const double start_s = monotonic_seconds();
  submit::SubmitReport sum;
  fs::path workspace;
  bool first = true;
  for (const auto& [name, cluster] : plan.clusters) {
    const sweep::Expansion share = share_of(plan, name, first);
    first = false;
    if (share.points.empty() || g_interrupted) continue;
    workspace = ledger::resolve_workspace(plan.project, request.workspace, cluster.workspace);
    submit::SubmitOptions options{.project = plan.project,
                                  .workspace = workspace,
                                  .trainer = trainer_of(cluster),
                                  .capabilities = capabilities_of(plan, name),
                                  .cluster = cluster,
                                  .repeats = plan.repeats,
                                  .only = *only,
                                  .max_parallel = request.max_parallel > 0
                                                      ? request.max_parallel
                                                      : static_cast<int>(cluster.max_parallel),
                                  .break_lock = request.break_lock,
                                  .profile = request.profile};
    options.cluster.name = name;
    ProgressLine line(stdout);
    int ended = 0;
    int total = 0;
    add(sum,
        submit::submit_local(
            share, options,
            {.selected =
                 [&](const std::vector<submit::Choice>& choices, int adopted) {
                   print_selection(plan.project, choices, adopted, plan.expansion.dropped.size(),
                                   request.only);
                   total = adopted;
                   for (const auto& choice : choices)
                     total += choice.verdict == submit::Verdict::start ? 1 : 0;
                 },
             .measuring =
                 [&](std::int64_t threads) {
                   line.message(fmt::format("measuring this CPU's peak with {} thread{}", threads,
                                            threads == 1 ? "" : "s"));
                 },
             .ended =
                 [&](const std::string& run, const cluster::Outcome& outcome) {
                   line.message(fmt::format("[{:>{}}/{}] {:<10} {}{}", ++ended,
                                            std::to_string(total).size(), total,
                                            to_text(outcome.status), run, details(outcome)));
                 },
             .peak_exceeded =
                 [&](const std::string& run) {
                   line.message(fmt::format(
                       "{}: faster than this CPU's remembered peak, which was measured on a slow "
                       "moment; the next submit measures it anew, --only all repeats the runs",
                       run));
                 },
             .progress = [&](const cluster::QueueProgress& progress) { line.show(progress); }},
            g_interrupted));
  }
  fmt::print("{} in {}\n", summary(sum, request.only),
             duration_text(monotonic_seconds() - start_s));
  fmt::print(
      "Where it stands: submit status {0}\nThe table:       collect {0}\nRuns:            {1}\n",
      plan.project, (workspace / plan.project).string());
  if (g_interrupted) {
    throw Error(ExitCode::interrupted, "", "interrupted",
                "the same command goes on with what is missing");
  }
  require_all_ok(sum, plan.project);
  return 0;
}

int run_status(const SubmitRequest& request) {
  if (request.names.size() > 1) {
    throw Error(ExitCode::usage, request.names[1], "status takes one project", "leave it out");
  }
  const std::string project = verb_project(request);
  const fs::path workspace = ledger::workspace_to_read(project, request.workspace);
  const submit::ProjectStatus status = submit::project_status(workspace / project);
  for (const std::string& damage : status.damage) fmt::print(stderr, "submit: {}\n", damage);
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
    if (run.status == runlog::Status::ok && !request.all_rows) {
      hidden = true;
      continue;
    }
    fmt::print("{:<10} {}{}{}\n", to_text(run.status), run.run,
               run.attempt > 1 ? fmt::format("  attempt {}", run.attempt) : "",
               run.reason.empty() ? "" : ": " + run.reason);
  }
  if (hidden) fmt::print("Those that are ok are listed with --all.\n");
  fmt::print("Runs: {}\n", (workspace / project).string());
  return 0;
}

int run_cancel(const SubmitRequest& request) {
  const std::string project = verb_project(request);
  const fs::path workspace = ledger::resolve_workspace(project, request.workspace);
  std::vector<std::string> runs;
  if (!request.names.empty()) runs.assign(request.names.begin() + 1, request.names.end());
  const submit::Cancellation done = submit::cancel_runs(workspace / project, runs);
  if (done.submit != 0)
    fmt::print("told to start no more: the submit at work, pid {}\n", done.submit);
  for (const std::string& run : done.runs) fmt::print("told to end: {}\n", run);
  if (done.runs.empty() && done.submit == 0)
    fmt::print("{}: nothing of yours runs here\n", project);
  if (!done.submit_not_told.empty()) {
    throw Error(ExitCode::refused, project,
                fmt::format("a submit goes on: {}", done.submit_not_told), "cancel it there");
  }
  return 0;
}

}  // namespace tessera::apps
