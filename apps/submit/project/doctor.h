// SPDX-License-Identifier: Apache-2.0
// Whether a cluster is as its file says, and what is to be changed in the file if not: `submit
// doctor`. Judging is pure; `examine` asks the cluster and its nodes.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "apps/submit/trainers/trainers.h"
#include "lib/cluster/scheduler.h"
#include "lib/hardware/catalogue.h"

namespace tessera::submit {

using cluster::Finding;

// One of the cluster's gpus against what a node of it said. `own_version`: of this submit.
std::vector<Finding> judge_node(const cluster::GpuEntry& gpu, const cluster::NodeReport& report,
                                const hardware::Catalogue& catalogue,
                                const std::string& own_version);

struct DoctorOptions {
  std::filesystem::path workspace;
  hardware::Catalogue catalogue;
  std::string own_version;  // as `trainer --version` says of the same build: "0.1.0"
  bool asks_nodes = true;   // with a job of one device each
  double patience_s = 120;  // with each
  std::function<bool()> interrupted;
  // As they are found, and what is waited for meanwhile.
  std::function<void(const Finding&)> found;
  std::function<void(const std::string&)> waiting;
};

// All findings, in order. What trainers on nodes said is remembered (trainers.h). Leaves nothing
// else behind. Error(interrupted).
std::vector<Finding> examine(cluster::Scheduler& scheduler, const DoctorOptions& options);

}  // namespace tessera::submit
