#include "apps/submit/cli/submission_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "apps/submit/loop/select.h"
#include "lib/base/error.h"
#include "lib/base/numbers.h"
#include "lib/sweep/duration.h"

namespace tessera::apps {

namespace {

constexpr std::int64_t kMostRepeats = 99;
constexpr std::int64_t kMany = 1000000;

double positive(const std::string& text, const char* flag) {
  const auto number = parse_number(text);
  if (!number || *number <= 0)
    throw Error(ExitCode::usage, flag, fmt::format("'{}' is not a positive number", text));
  return *number;
}

std::int64_t duration(const std::string& text, const char* flag) {
  const auto seconds = sweep::parse_duration(text);
  if (!seconds)
    throw Error(ExitCode::usage, flag, fmt::format("'{}' is no duration", text),
                sweep::kDurationFix);
  return *seconds;
}

void whole(const std::string& text, const char* flag, std::int64_t most, int& target) {
  if (!text.empty()) target = static_cast<int>(require_integer(text, flag, 1, most));
}

}  // namespace

void declare_submission(CLI::App& app, SubmitRequest& request, SubmissionFlags& flags) {
  const char* group = "Submission";
  app.add_option("--project", request.project, "name that runs and results share")->group(group);
  app.add_flag("--RUN", request.run, "submit; without it the plan is printed")->group(group);
  app.add_option("--only", request.only,
                 "missing (default), failed, oom, unknown, stale (of another build), all")
      ->group(group);
  app.add_flag("--force", request.force, "also runs of which nobody knows how they ended")
      ->group(group);
  app.add_option("--attempts", flags.attempts, "pass over runs that had as many attempts")
      ->group(group);
  app.add_flag("--retry-oom", request.retry_oom,
               "run what is out of memory again with half the microbatch")
      ->group(group);
  app.add_option("--repeats", flags.repeats, "runs of each point")->group(group);
  app.add_option("--workspace", request.workspace, "folder for runs")->group(group);
  app.add_option("--gpu-catalogue", request.gpu_catalogue, "file that adds GPUs")->group(group);
  app.add_flag("--break-lock", request.break_lock, "take over the lock of a dead submit")
      ->group(group);
  app.add_flag("--rebuild", request.rebuild, "as the verb rebuild")->group(group);
  app.add_flag("--profile", request.profile,
               "measure each operation of three more steps of a run: collect show, and its output")
      ->group(group);

  const char* jobs = "Jobs";
  app.add_option("--max-parallel", flags.max_parallel, "runs at once on this machine")->group(jobs);
  app.add_option("--max-in-flight", flags.max_in_flight, "jobs on a cluster at once")->group(jobs);
  app.add_option("--pack", flags.pack, "runs of one shape in allocations of so long: 2h")
      ->group(jobs);
  app.add_option("--time", flags.time, "time limit of a run: 30m, or auto (default)")->group(jobs);
  app.add_option("--max-gpu-hours", flags.max_gpu_hours, "refuse a plan that takes more")
      ->group(jobs);
  app.add_option("--rate", flags.rate, "jobs handed over a second, at most")->group(jobs);
  app.add_option("--max-failures", flags.max_failures,
                 "refused jobs after which no more are handed over (default 3)")
      ->group(jobs);
  app.add_flag("--wait", request.wait, "stay until all runs have ended")->group(jobs);
  app.add_flag("--detach", request.detach, "where it stays: go on in the background")->group(jobs);

  app.add_option("--partition", request.partition,
                 "of init: the one that the cluster file is for (default: Slurm's, or the one with "
                 "most GPU nodes)")
      ->group(jobs);

  const char* print = "What is printed";
  app.add_flag("--all", request.all_rows, "every point of the plan, every run of status")
      ->group(print);
  app.add_flag("--memory", request.memory, "what the plan's points need of device memory")
      ->group(print);
  app.add_flag("--json", request.json, "the plan as JSON")->group(print);
  app.add_option("--render", request.render,
                 "write the scripts and specifications of the plan's jobs into a folder")
      ->group(print);
  app.add_flag("--check", request.check, "ask the cluster whether it would take the jobs")
      ->group(print);
  app.add_flag("--watch", request.watch, "of status: print it again until all have ended")
      ->group(print);
  app.add_flag("--offline", request.offline, "of status: ask no cluster")->group(print);
  app.add_flag("-f,--follow", request.follow, "of logs: go on until the run has ended")
      ->group(print);
  app.add_option("--attempt", flags.attempt, "of logs: which one (default the newest)")
      ->group(print);
  app.add_flag("--no-jobs", request.no_jobs, "of doctor: send no job to a node")->group(print);
  app.add_option("--patience", flags.patience, "of doctor: how long with each node (default 2m)")
      ->group(print);
}

void check_submission(const SubmissionFlags& flags, SubmitRequest& request) {
  whole(flags.repeats, "--repeats", kMostRepeats, request.repeats);
  whole(flags.max_parallel, "--max-parallel", 1024, request.max_parallel);
  whole(flags.max_in_flight, "--max-in-flight", kMany, request.max_in_flight);
  whole(flags.max_failures, "--max-failures", kMany, request.max_failures);
  whole(flags.attempt, "--attempt", kMany, request.output_attempt);
  whole(flags.attempts, "--attempts", kMany, request.most_attempts);
  if (!flags.pack.empty()) request.pack_s = duration(flags.pack, "--pack");
  if (!flags.time.empty() && flags.time != "auto") request.time_s = duration(flags.time, "--time");
  if (!flags.patience.empty()) request.patience_s = duration(flags.patience, "--patience");
  if (!flags.rate.empty()) request.rate_per_s = positive(flags.rate, "--rate");
  if (!flags.max_gpu_hours.empty())
    request.max_gpu_hours = positive(flags.max_gpu_hours, "--max-gpu-hours");
  if (!from_text<submit::Only>(request.only)) {
    throw Error(ExitCode::usage, "--only", fmt::format("unknown value '{}'", request.only),
                suggestion(request.only, all_names<submit::Only>()));
  }
  if (!request.verb.empty()) return;
  struct OfVerb {
    bool given;
    const char* flag;
    const char* verb;
  };
  const OfVerb of_verbs[] = {{request.watch, "--watch", "status"},
                             {request.offline, "--offline", "status"},
                             {request.follow, "--follow", "logs"},
                             {request.output_attempt > 0, "--attempt", "logs"},
                             {request.no_jobs, "--no-jobs", "doctor"},
                             {request.patience_s > 0, "--patience", "doctor"},
                             {!request.partition.empty(), "--partition", "init"}};
  for (const OfVerb& each : of_verbs) {
    if (each.given)
      throw Error(ExitCode::usage, each.flag, fmt::format("goes with the verb {}", each.verb));
  }
  if (request.detach && !request.run)
    throw Error(ExitCode::usage, "--detach", "there is nothing to go on with",
                "it goes with --RUN and with the verb rerun");
  const std::pair<bool, const char*> dry[] = {{!request.render.empty(), "--render"},
                                              {request.check, "--check"}};
  for (const auto& [given, flag] : dry) {
    if (given && request.run)
      throw Error(ExitCode::usage, flag, "submits nothing, --RUN does", "keep one of them");
    if (given && (request.json || request.memory))
      throw Error(ExitCode::usage, flag, "prints no plan",
                  fmt::format("leave out {}", request.json ? "--json" : "--memory"));
  }
}

void take_limits_of_sweep(const SubmissionFlags& flags, SubmitRequest& request) {
  const sweep::Limits& limits = request.grid.limits;
  if (flags.time.empty() && limits.time_s) request.time_s = *limits.time_s;
  if (flags.max_in_flight.empty() && limits.max_in_flight)
    request.max_in_flight = static_cast<int>(*limits.max_in_flight);
  if (flags.max_gpu_hours.empty() && limits.max_gpu_hours)
    request.max_gpu_hours = *limits.max_gpu_hours;
  if (flags.pack.empty() && limits.pack_s) request.pack_s = *limits.pack_s;
}

}  // namespace tessera::apps
