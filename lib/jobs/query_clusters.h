// SPDX-License-Identifier: Apache-2.0
// What the clusters say about runs that the ledger knows no end of.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lib/jobs/live_jobs.h"
#include "lib/jobs/schedulers.h"
#include "lib/ledger/ledger.h"

namespace tessera::jobs {

struct OpenState {
  std::string cluster;
  std::string job;
  runlog::Status status = runlog::Status::unknown;  // pending, running, unknown
  std::string reason;
};

struct ClusterAnswers {
  std::map<std::string, OpenState> open;  // by run
  std::vector<ledger::Entry> finals;      // ends that nobody has written down yet
  std::vector<std::string> silent;        // clusters that could not be asked, and why
  std::vector<LiveJob> live;              // whose jobs are there, pending or running
};

// Each cluster once for all its jobs, whoever's where it can tell; records nothing. `ask` false:
// none but this machine, which always answers.
ClusterAnswers query_clusters(const std::filesystem::path& project_dir,
                              const std::map<std::string, ledger::RunState>& states,
                              Schedulers& schedulers, bool ask);

}  // namespace tessera::jobs
