// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/cli/submit_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <vector>

#include "apps/submit/cli/detach.h"
#include "apps/submit/cli/interrupts.h"
#include "apps/submit/cli/progress.h"
#include "apps/submit/loop/oom.h"
#include "apps/submit/loop/submit.h"
#include "apps/submit/plan/plan_share.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/process.h"
#include "lib/base/text.h"
#include "lib/cluster/backends.h"
#include "lib/ledger/state.h"
#include "lib/point/identity.h"
#include "lib/runlog/footer.h"

namespace tessera::apps {

namespace fs = std::filesystem;

namespace {

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
                     int adopted, bool waits, std::size_t dropped, const std::string& only) {
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
  std::string line = fmt::format("{}: {}, {} to start", project, counted(choices.size(), "run"),
                                 counts[submit::Verdict::start]);
  const auto add = [&](int count, const std::string& what) {
    if (count > 0) line += fmt::format(", {} {}", count, what);
  };
  add(counts[submit::Verdict::done], "done before");
  if (!not_ok.empty()) line += ", " + not_ok_text(not_ok);
  add(counts[submit::Verdict::unselected], "not selected by --only " + only);
  add(adopted, waits ? "running already (waited for)" : "on the cluster already");
  add(counts[submit::Verdict::others], "of another user (not touched)");
  add(counts[submit::Verdict::exhausted], "had all their attempts");
  if (dropped > 0) line += fmt::format("; {} dropped", counted(dropped, "point"));
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

// What the runs came to, for the closing line.
std::string summary(const submit::SubmitReport& sum, const std::string& only) {
  std::string text;
  if (sum.on_cluster > 0 && sum.ok + sum.failed == 0) {
    text = fmt::format("{} handed over in {}, {} on the cluster now", counted(sum.started, "run"),
                       counted(sum.jobs, "job"), sum.on_cluster);
  } else {
    text = fmt::format("{} ok, {} not ok", sum.ok, sum.failed);
    if (sum.on_cluster > 0) text += fmt::format(", {} still on the cluster", sum.on_cluster);
  }
  const auto add = [&](int count, const std::string& what) {
    if (count > 0) text += fmt::format(", {} {}", count, what);
  };
  add(sum.never_start, "of them will never start");
  add(sum.refused, "refused by the cluster");
  add(sum.skipped, "not tried: less ran out of memory");
  add(sum.cancelled, "cancelled");
  add(sum.not_started, "not started");
  add(sum.ok_before, "done before");
  if (!sum.not_ok_before.empty()) text += ", " + not_ok_text(sum.not_ok_before);
  add(sum.unselected, "not selected by --only " + only);
  add(sum.others, "of another user");
  return text;
}

// One line if not all that was asked for is ok now, and what to do about it.
void require_all_ok(const submit::SubmitReport& sum, const std::string& project, bool interrupted) {
  if (sum.refused > 0) {
    throw Error(ExitCode::unreachable, "", "the cluster refused " + counted(sum.refused, "run"),
                "mend the cluster file or the plan; the same command goes on");
  }
  if (sum.never_start > 0 && !interrupted) {
    throw Error(
        ExitCode::runs_failed, "", counted(sum.never_start, "run") + " will never start",
        fmt::format("submit status {0} says why, submit cancel {0} takes them away", project));
  }
  if (sum.not_started > 0 && !interrupted) {
    throw Error(ExitCode::unreachable, "",
                fmt::format("{} {} not handed over: the cluster takes no more now",
                            counted(sum.not_started, "run"), sum.not_started == 1 ? "was" : "were"),
                "the same command goes on later; with --wait it stays until all are done");
  }
  int before = 0;
  for (const auto& [status, count] : sum.not_ok_before) before += count;
  const int failed = sum.failed + before;
  if (failed > 0) {
    throw Error(
        ExitCode::runs_failed, "",
        fmt::format("{} did not end ok{}", counted(failed, "run"),
                    sum.failed > 0 ? "" : ", before"),
        fmt::format(
            "see submit status {}, or run them again with --only failed (cut short: --only all)",
            project));
  }
  if (sum.cancelled > 0) {
    throw Error(ExitCode::runs_failed, "",
                fmt::format("{} {} cancelled", counted(sum.cancelled, "run"),
                            sum.cancelled == 1 ? "was" : "were"),
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

// `again`: of the same points; what was before is counted already.
void add(submit::SubmitReport& sum, const submit::SubmitReport& report, bool again) {
  sum.started += report.started;
  sum.ok += report.ok;
  sum.failed += report.failed;
  sum.cancelled += report.cancelled;
  if (!again) {
    sum.ok_before += report.ok_before;
    for (const auto& [status, count] : report.not_ok_before) sum.not_ok_before[status] += count;
    sum.unselected += report.unselected;
    sum.others += report.others;
    sum.skipped += report.skipped;
  }
  sum.not_started += report.not_started;
  sum.jobs += report.jobs;
  sum.on_cluster += report.on_cluster;
  sum.never_start += report.never_start;
  sum.refused += report.refused;
}

// The plan with the retries of what has run out of memory so far. Whether there are any that were
// not there before.
bool add_retries(sweep::Expansion& plan, submit::SubmitOptions& options) {
  const fs::path project_dir = options.workspace / options.project;
  const auto states = ledger::run_states(ledger::read_ledger(project_dir));
  submit::OomRetries retries =
      submit::oom_retries(plan.points, options.project, options.repeats, states, project_dir);
  for (sweep::Planned& point : plan.points) {
    const auto smaller = retries.microbatches.find(point.id);
    if (smaller != retries.microbatches.end()) point.microbatch = smaller->second;
  }
  options.select.also = {retries.again.begin(), retries.again.end()};
  for (const sweep::Planned& point : retries.derived) {
    const std::string slug = sweep::slug(point.label, point.point, options.project);
    for (int repeat = 1; repeat <= options.repeats; ++repeat)
      options.select.also.insert(sweep::run_name(options.project, slug, point.id, repeat));
  }
  plan.points.insert(plan.points.end(), retries.derived.begin(), retries.derived.end());
  return !retries.derived.empty() || !retries.again.empty();
}

// What is shown of a submission: lines that stay, and on a terminal one that says how far it is.
class Reporter {
 public:
  Reporter(const SubmitRequest& request, const Plan& plan, bool waits)
      : request_(request), plan_(plan), waits_(waits) {}

  submit::SubmitEvents events() {
    submit::SubmitEvents events;
    events.selected = [this](const std::vector<submit::Choice>& choices, int adopted) {
      print_selection(plan_.project, choices, adopted, waits_, plan_.expansion.dropped.size(),
                      request_.only);
      total_ = adopted;
      for (const auto& choice : choices) total_ += choice.verdict == submit::Verdict::start ? 1 : 0;
    };
    events.measuring = [this](std::int64_t threads) {
      line_.message("measuring this CPU's peak with " + counted(threads, "thread"));
    };
    events.ended = [this](const std::string& run, const cluster::Outcome& outcome) {
      line_.message(fmt::format("[{:>{}}/{}] {:<10} {}{}", ++ended_, std::to_string(total_).size(),
                                total_, to_text(outcome.status), run, details(outcome)));
    };
    events.peak_exceeded = [this](const std::string& run) {
      line_.message(fmt::format(
          "{}: faster than this CPU's remembered peak, which was measured on a slow moment; the "
          "next submit measures it anew, --only all repeats the runs",
          run));
    };
    events.never_starts = [this](const std::string& job, const std::string& reason) {
      line_.message(
          fmt::format("{} will never start: {}; submit cancel takes it away", job, reason));
    };
    events.note = [this](const std::string& text) { line_.message(text); };
    events.progress = [this](const submit::Progress& progress) { line_.show(progress); };
    return events;
  }

 private:
  const SubmitRequest& request_;
  const Plan& plan_;
  const bool waits_;
  ProgressLine line_{stdout};
  int ended_ = 0;
  int total_ = 0;
};

}  // namespace

int run_plan(const SubmitRequest& request, const Plan& plan) {
  require_runnable(request, plan);
  const std::atomic<bool>& interrupted = catch_interrupts();
  const double start_s = monotonic_seconds();
  const auto clusters = clusters_of(plan);
  const fs::path workspace = workspace_of(request, plan, clusters);
  const bool stays = request.wait || cluster::backend_of(*clusters.back()).is_this_machine;
  Detachment detachment;
  if (request.detach && stays) {
    if (const auto code = detachment.begin(plan.project)) return *code;
  }
  submit::SubmitReport sum;
  bool first = true;
  for (const cluster::Cluster* cluster : clusters) {
    if (interrupted) break;
    const auto scheduler = cluster::make_scheduler(*cluster, user_name());
    const bool waits = request.wait || !scheduler->queues();
    sweep::Expansion share = share_of(plan, cluster->name, first);
    submit::SubmitOptions options = options_of(request, plan, *cluster, workspace);
    first = false;
    for (bool again = false;; again = true) {
      const bool retries = request.retry_oom && add_retries(share, options);
      if (again && !retries) break;
      options.select.only_also = again;
      Reporter reporter(request, plan, waits);
      submit::SubmitEvents events = reporter.events();
      detachment.hook(events, workspace / plan.project);
      const submit::SubmitReport report =
          submit::submit_plan(share, *scheduler, options, events, interrupted);
      add(sum, report, again);
      if (!waits || interrupted || report.gave_up || (again && report.started == 0)) break;
    }
  }
  fmt::print("{} in {}\n", summary(sum, request.only),
             duration_text(monotonic_seconds() - start_s));
  fmt::print(
      "Where it stands: submit status {0}\nThe table:       collect {0}\nRuns:            {1}\n",
      plan.project, (workspace / plan.project).string());
  if (interrupted) {
    throw Error(ExitCode::interrupted, "", "interrupted",
                sum.on_cluster > 0 ? "jobs on the cluster go on; submit cancel ends them"
                                   : "the same command goes on with what is missing");
  }
  require_all_ok(sum, plan.project, interrupted);
  return 0;
}

}  // namespace tessera::apps
