// SPDX-License-Identifier: Apache-2.0
// What an end for want of memory means for other points of a plan.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/ledger/ledger.h"
#include "lib/sweep/expand.h"

namespace tessera::submit {

// Points that differ in nothing but one axis: once one has run out of memory, those with larger
// values need not be tried. The global batch is no part of the comparison: a device's memory does
// not depend on it but by the microbatch.
class OomWall {
 public:
  // "" if an axis can be a wall, else what would be right.
  static std::string fault(const std::string& axis);

  // `axis` empty: no wall. Error(internal) if fault() says something.
  explicit OomWall(std::string axis);

  void ran_out(const sweep::Point& point);
  // Why the point need not be tried: "microbatch_size 4 ran out of memory".
  std::optional<std::string> beyond(const sweep::Point& point) const;

 private:
  std::string axis_;
  std::int64_t sweep::Point::* member_;        // of the axis; nullptr: no wall
  std::map<std::string, std::int64_t> least_;  // that ran out, by what else the point is
};

struct OomRetries {
  std::vector<sweep::Planned> derived;  // new points, to stand behind the plan's own
  // The microbatch of a new attempt at each point with an automatic one, by id; and the runs that
  // want a new attempt.
  std::map<std::string, std::int64_t> microbatches;
  std::vector<std::string> again;
};

// For each point whose deciding attempt ran out of memory: the point with half the microbatch,
// derived from it (and of that, if it ran out too); where it was automatic, the same run with half
// of what it had. None is left at 1. `project_dir` holds the specifications that say what an
// automatic one was.
OomRetries oom_retries(const std::vector<sweep::Planned>& points, const std::string& project,
                       int repeats, const std::map<std::string, ledger::RunState>& states,
                       const std::filesystem::path& project_dir);

}  // namespace tessera::submit
