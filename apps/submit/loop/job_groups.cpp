// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/loop/job_groups.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tessera::submit {

namespace {

std::vector<JobGroup> packed(std::span<const RunToPlace> runs, double pack_s) {
  struct Open {
    std::size_t group;
    double seconds;
  };
  std::vector<JobGroup> groups;
  std::map<RunShape, Open> open;  // the group of each shape that may take more
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunToPlace& run = runs[i];
    const bool may_share = run.seconds > 0 && run.time_limit_s > 0;
    const auto found = open.find(run.shape);
    if (may_share && found != open.end() && found->second.seconds + run.seconds <= pack_s) {
      JobGroup& group = groups[found->second.group];
      group.runs.push_back(i);
      group.time_limit_s += run.time_limit_s;
      found->second.seconds += run.seconds;
      continue;
    }
    if (may_share) open[run.shape] = {.group = groups.size(), .seconds = run.seconds};
    groups.push_back({.runs = {i}, .array = false, .time_limit_s = run.time_limit_s});
  }
  return groups;
}

std::vector<JobGroup> arrays(std::span<const RunToPlace> runs, std::size_t largest) {
  std::vector<JobGroup> groups;
  std::map<std::pair<RunShape, std::int64_t>, std::size_t> open;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::pair key{runs[i].shape, runs[i].time_limit_s};
    const auto found = open.find(key);
    if (found != open.end() && groups[found->second].runs.size() < largest) {
      groups[found->second].runs.push_back(i);
      continue;
    }
    open[key] = groups.size();
    groups.push_back({.runs = {i}, .array = true, .time_limit_s = runs[i].time_limit_s});
  }
  for (JobGroup& group : groups) group.array = group.runs.size() > 1;
  return groups;
}

}  // namespace

std::vector<JobGroup> group_jobs(std::span<const RunToPlace> runs, const Grouping& grouping) {
  if (grouping.pack_s > 0) return packed(runs, grouping.pack_s);
  return arrays(runs, std::max<std::size_t>(grouping.array_size, 1));
}

}  // namespace tessera::submit
