// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/cli/doctor_verb.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <memory>

#include "apps/submit/cli/interrupts.h"
#include "apps/submit/cli/progress.h"
#include "apps/submit/cli/submission_flags.h"
#include "apps/submit/project/doctor.h"
#include "lib/base/command.h"
#include "lib/base/error.h"
#include "lib/base/process.h"
#include "lib/cluster/backends.h"
#include "lib/ledger/state.h"

namespace tessera::apps {

namespace {

using submit::Finding;
using Level = Finding::Level;

struct DoctorRequest {
  std::vector<std::string> names;
  std::vector<std::string> clusters;  // by -c
  bool no_jobs = false;
  std::int64_t patience_s = 0;  // with each node; 0: as it likes
  std::string workspace;
  std::string gpu_catalogue;
};

const char* word(Level level) {
  switch (level) {
    case Level::ok:
      return "ok";
    case Level::note:
      return "note";
    case Level::mend:
      return "MEND";
    case Level::silent:
      break;
  }
  return "???";
}

// Findings stay in place, progress does not: both go through `line` where they share a terminal.
void print(const Finding& finding, std::size_t width) {
  fmt::print("{:<4}  {:<{}}  {}\n", word(finding.level), finding.about, width, finding.text);
  if (!finding.fix.empty()) fmt::print("{:<4}  {:<{}}  -> {}\n", "", "", width, finding.fix);
  std::fflush(stdout);
}

// What a trainer of this build says, if it is beside this program.
std::string own_version() {
  constexpr double kAnswer_s = 60;
  const CommandResult result =
      run_command({cluster::local_trainer({}).string(), "--version"}, {.limit_s = kAnswer_s});
  return result.exit_code == 0 ? result.out.substr(0, result.out.find('\n')) : "";
}

// Prints the findings as they come. 0: nothing is to be mended; Error(refused) if something is,
// Error(unreachable) if something could not be asked, Error(interrupted).
int run_doctor(const DoctorRequest& request) {
  std::vector<std::string> names = request.clusters;
  names.insert(names.end(), request.names.begin(), request.names.end());
  if (names.empty())
    throw Error(ExitCode::usage, "submit doctor", "which cluster?", "write submit doctor NAME");
  const std::atomic<bool>& interrupted = catch_interrupts();
  std::map<Level, int> counts;
  std::vector<cluster::Cluster> clusters;
  for (const std::string& name : names)
    clusters.push_back(cluster::find_cluster(name, "submit doctor"));
  for (const cluster::Cluster& cluster : clusters) {
    const auto scheduler = cluster::make_scheduler(cluster, user_name());
    fmt::print("{}: {}\n", cluster.name, cluster.source);
    std::fflush(stdout);
    std::size_t width = std::string_view("accounting").size();
    for (const cluster::GpuEntry& gpu : cluster.gpus) width = std::max(width, gpu.name.size());
    ProgressLine line(stderr);
    submit::DoctorOptions options;
    options.workspace = ledger::resolve_workspace("", request.workspace, cluster.workspace);
    options.catalogue = hardware::load_catalogue(request.gpu_catalogue);
    options.own_version = own_version();
    options.asks_nodes = !request.no_jobs;
    if (request.patience_s > 0) options.patience_s = static_cast<double>(request.patience_s);
    options.interrupted = [&] { return interrupted.load(); };
    options.found = [&](const Finding& finding) {
      line.clear();
      print(finding, width);
      ++counts[finding.level];
    };
    options.waiting = [&](const std::string& text) { line.waiting(text); };
    submit::examine(*scheduler, options);
  }
  if (counts[Level::mend] > 0) {
    throw Error(ExitCode::refused, "submit doctor",
                fmt::format("{} to mend{}", counts[Level::mend],
                            counts[Level::silent] > 0
                                ? fmt::format(", {} not found out", counts[Level::silent])
                                : ""));
  }
  if (counts[Level::silent] > 0) {
    throw Error(ExitCode::unreachable, "submit doctor",
                fmt::format("{} not found out", counts[Level::silent]));
  }
  fmt::print("Nothing to mend.{}\n", request.no_jobs ? " Nodes were not asked: --no-jobs." : "");
  return 0;
}

}  // namespace

void add_doctor(cli::Command& submit) {
  const auto request = std::make_shared<DoctorRequest>();
  const auto patience = std::make_shared<std::string>();
  cli::Command& doctor =
      submit.add_verb("doctor", "Check clusters against their files, and say what to change");
  doctor.add_option("names", request->names, "Clusters: names or files")->type_name("NAME|FILE");
  doctor.add_option("-c,--clusters", request->clusters, "Clusters, likewise")
      ->type_name("NAME|FILE");
  doctor.add_flag("--no-jobs", request->no_jobs, "Send no job to a node");
  doctor.add_option("--patience", *patience, "Wait this long for each node (default 2m)")
      ->type_name("TIME");
  declare_workspace(doctor, request->workspace);
  declare_catalogue(doctor, request->gpu_catalogue);
  doctor.examples = {{"submit doctor hgx", "ask Slurm and a node of each kind"},
                     {"submit doctor local", "check this machine"}};
  doctor.exit_codes = {{ExitCode::ok, "nothing is to be mended"},
                       {ExitCode::input, "a cluster file is wrong"},
                       {ExitCode::refused, "something is to be mended"},
                       {ExitCode::unreachable, "something could not be found out"},
                       {ExitCode::interrupted, "interrupted"}};
  doctor.action = [request, patience] {
    request->patience_s = duration_s(*patience, "--patience").value_or(0);
    return run_doctor(*request);
  };
}

}  // namespace tessera::apps
