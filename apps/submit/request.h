// SPDX-License-Identifier: Apache-2.0
// A plan and how to submit it, as a value: flags and a sweep file's grid, checked and in numbers.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "lib/sweep/grid.h"

namespace tessera::apps {

struct SubmitRequest {
  std::set<std::string> named;  // of rerun, the runs found: these are started and no other

  sweep::Grid grid;
  bool has_sweep = false;
  bool chooses_gpu = false;  // false: points are planned on every GPU that their cluster has

  bool run = false;
  bool force = false;
  bool retry_oom = false;
  bool break_lock = false;
  bool profile = false;
  std::string project;
  std::string only = "missing";  // a name of submit::Only
  std::string workspace;         // empty: decided by state and cluster file
  std::string gpu_catalogue;
  int repeats = 1;
  int most_attempts = 0;  // 0: no limit

  int max_parallel = 0;      // on this machine; 0: as the cluster file says
  int max_in_flight = 0;     // on a cluster; 0: as the cluster file says
  std::int64_t pack_s = 0;   // 0: no packing
  std::int64_t time_s = 0;   // of a run; 0: from an estimate
  double max_gpu_hours = 0;  // 0: no limit
  double rate_per_s = 0;     // 0: as the cluster file says
  int max_failures = 3;
  bool wait = false;
  bool detach = false;
  bool check = false;
  std::string render;  // a folder

  bool json = false;
  bool memory = false;
  bool all_rows = false;

  std::vector<std::string> warnings;  // one line each, for stderr
  // Given, planned with, but not to be run with yet: "--image: ...". --RUN refuses them.
  std::vector<std::string> not_runnable;
};

}  // namespace tessera::apps
