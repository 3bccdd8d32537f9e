// SPDX-License-Identifier: Apache-2.0
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

void whole(const std::string& text, const char* flag, std::int64_t most, int& target) {
  if (!text.empty()) target = static_cast<int>(require_integer(text, flag, 1, most));
}

// Each flag is declared once, for the groups of submit and for the short list of a verb.
class Declarations {
 public:
  explicit Declarations(CLI::App& app) : app_(app) {}

  void begin_group(const char* group) { app_.option_defaults()->group(group); }
  void text(const char* name, const char* type, std::string& target, const char* help) {
    app_.add_option(name, target, help)->type_name(type);
  }
  void flag(const char* name, bool& target, const char* help) { app_.add_flag(name, target, help); }

 private:
  CLI::App& app_;
};

void declare_time(Declarations& declare, std::string& time) {
  declare.text("--time", "TIME|auto", time, "Give each run this time limit: 30m (default auto)");
}

void declare_waiting(Declarations& declare, SubmitRequest& request) {
  declare.flag("--wait", request.wait, "Stay until all runs have ended");
  declare.flag("--detach", request.detach, "Go on in the background where it would stay");
}

void declare_profile(Declarations& declare, SubmitRequest& request) {
  declare.flag("--profile", request.profile,
               "Measure each operation in three more steps; collect show prints the result");
}

}  // namespace

void declare_submission(CLI::App& app, SubmitRequest& request, SubmissionFlags& flags) {
  Declarations declare(app);
  declare.begin_group("Runs");
  declare.flag("--RUN", request.run, "Submit; without it only the plan is printed");
  declare.text("--project", "NAME", request.project,
               "Name that runs and results share (default: the sweep file's, else tput)");
  declare.text("--only", "missing|failed|oom|unknown|stale|all", request.only,
               "Runs to start (default missing: never run or cut short); stale: of another build");
  declare.flag("--force", request.force, "Rerun also runs whose outcome is unknown");
  declare.text("--attempts", "N", flags.attempts, "Skip runs that already had N attempts");
  declare.flag("--retry-oom", request.retry_oom,
               "Run what runs out of memory again with half the microbatch");
  declare.text("--repeats", "N", flags.repeats, "Run each point N times (default 1)");
  declare_profile(declare, request);
  declare_workspace(app, request.workspace);
  declare_catalogue(app, request.gpu_catalogue);
  declare_break_lock(app, request.break_lock);

  declare.begin_group("Jobs");
  declare.text("--max-parallel", "N", flags.max_parallel, "Run at most N at once on this machine");
  declare.text("--max-in-flight", "N", flags.max_in_flight, "Keep at most N jobs on a cluster");
  declare.text("--pack", "TIME", flags.pack,
               "Put runs of one shape into shared allocations of this length: 2h");
  declare_time(declare, flags.time);
  declare.text("--max-gpu-hours", "N", flags.max_gpu_hours, "Refuse a plan that takes more");
  declare.text("--rate", "N", flags.rate, "Hand over at most N jobs a second");
  declare.text("--max-failures", "N", flags.max_failures,
               "Stop handing over after N refused jobs (default 3)");
  declare_waiting(declare, request);

  declare.begin_group("Print instead of submitting");
  declare.flag("--all", request.all_rows, "List every point of the plan");
  declare.flag("--memory", request.memory, "Show the device memory that each point needs");
  declare.flag("--json", request.json, "Print the plan as JSON");
  declare.text("--render", "DIR", request.render,
               "Write the scripts and specifications of the jobs into a folder");
  declare.flag("--check", request.check, "Ask the cluster whether it would take the jobs");
}

void check_submission(const SubmissionFlags& flags, SubmitRequest& request) {
  whole(flags.repeats, "--repeats", kMostRepeats, request.repeats);
  whole(flags.max_parallel, "--max-parallel", 1024, request.max_parallel);
  whole(flags.max_in_flight, "--max-in-flight", kMany, request.max_in_flight);
  whole(flags.max_failures, "--max-failures", kMany, request.max_failures);
  whole(flags.attempts, "--attempts", kMany, request.most_attempts);
  request.pack_s = duration_s(flags.pack, "--pack").value_or(0);
  request.time_s = run_time_s(flags.time);
  if (!flags.rate.empty()) request.rate_per_s = positive(flags.rate, "--rate");
  if (!flags.max_gpu_hours.empty())
    request.max_gpu_hours = positive(flags.max_gpu_hours, "--max-gpu-hours");
  if (!from_text<submit::Only>(request.only)) {
    throw Error(ExitCode::usage, "--only", fmt::format("unknown value '{}'", request.only),
                suggestion(request.only, all_names<submit::Only>()));
  }
  if (request.run && request.json)
    throw Error(ExitCode::usage, "--json", "prints a plan, --RUN submits it", "keep one of them");
  if (request.memory && (request.run || request.json))
    throw Error(ExitCode::usage, "--memory", "prints tables of a plan",
                fmt::format("leave out {}", request.run ? "--RUN" : "--json"));
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

void declare_workspace(CLI::App& app, std::string& workspace) {
  Declarations(app).text("--workspace", "DIR", workspace, "Folder that holds the projects");
}

void declare_catalogue(CLI::App& app, std::string& gpu_catalogue) {
  Declarations(app).text("--gpu-catalogue", "FILE", gpu_catalogue, "Add the GPUs of this file");
}

void declare_break_lock(CLI::App& app, bool& break_lock) {
  Declarations(app).flag("--break-lock", break_lock, "Take over the lock of a submit that died");
}

void declare_handover(CLI::App& app, SubmitRequest& request, std::string& time) {
  Declarations declare(app);
  declare_profile(declare, request);
  declare_time(declare, time);
  declare_waiting(declare, request);
  declare_catalogue(app, request.gpu_catalogue);
  declare_break_lock(app, request.break_lock);
}

std::optional<int> positive_count(const std::string& text, const char* flag) {
  if (text.empty()) return std::nullopt;
  return static_cast<int>(require_integer(text, flag, 1, kMany));
}

std::optional<std::int64_t> duration_s(const std::string& text, const char* flag) {
  if (text.empty()) return std::nullopt;
  const auto seconds = sweep::parse_duration(text);
  if (!seconds)
    throw Error(ExitCode::usage, flag, fmt::format("'{}' is no duration", text),
                sweep::kDurationFix);
  return seconds;
}

std::int64_t run_time_s(const std::string& time) {
  return time == "auto" ? 0 : duration_s(time, "--time").value_or(0);
}

}  // namespace tessera::apps
