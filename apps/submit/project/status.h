// SPDX-License-Identifier: Apache-2.0
// Where a project stands, and how to end its runs.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "lib/jobs/schedulers.h"
#include "lib/runlog/record.h"

namespace tessera::submit {

struct RunStatus {
  std::string run;
  std::string label;
  int attempt = 0;  // the one that decides; 0: never started
  std::string user;
  std::string cluster;
  std::string job;  // of an attempt that has not ended
  runlog::Status status = runlog::Status::missing;
  std::string reason;
};

struct ProjectStatus {
  std::vector<RunStatus> runs;      // of every planned point and repeat, in the order of the plan
  std::size_t dropped = 0;          // points that plans dropped
  std::vector<std::string> damage;  // ledger lines that cannot be believed, "file:line: what"
  std::vector<std::string> silent;  // clusters that could not be asked, and why
};

// From ledger, logs and the clusters, each asked once for all its jobs; changes nothing, needs no
// lock. `ask` false: no cluster is asked but this machine. Error(empty) if the project has no
// ledger.
ProjectStatus project_status(const std::filesystem::path& project_dir, jobs::Schedulers& schedulers,
                             bool ask = true);

struct Cancellation {
  std::vector<std::string> runs;  // told to end
  pid_t submit = 0;               // the submit at work, told to start no more; 0: none
  std::string submit_not_told;    // "kim on node7, pid 12": one that goes on, and why it can
};

// Tells the living runs of this user to end, by their jobs: SIGTERM, so that each writes a true
// footer. `runs` empty: all, and a submit of this user that works on the project starts no more.
// The ledger has the cancel before any signal is sent. A job of several runs ends whole:
// Error(refused) unless all its runs are named. Error(empty) if a named run is not one that was
// started in this project; Error(refused) for another user's run or one on another host;
// Error(unreachable).
Cancellation cancel_runs(const std::filesystem::path& project_dir, jobs::Schedulers& schedulers,
                         const std::vector<std::string>& runs);

}  // namespace tessera::submit
