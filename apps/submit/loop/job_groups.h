// SPDX-License-Identifier: Apache-2.0
// Which runs share a job: one each, several of one shape in an allocation (pack), or arrays.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::submit {

// What a cluster must know of a run to place it.
struct RunShape {
  std::string gpu;
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;
  std::int64_t threads = 0;
  auto operator<=>(const RunShape&) const = default;
};

struct RunToPlace {
  RunShape shape;
  double seconds = 0;             // that it is expected to take, start-up included; 0: not known
  std::int64_t time_limit_s = 0;  // alone; 0: the cluster's own
};

struct JobGroup {
  std::vector<std::size_t> runs;  // indices, in order
  bool array = false;
  std::int64_t time_limit_s = 0;
};

struct Grouping {
  double pack_s = 0;           // 0: no packing
  std::size_t array_size = 0;  // largest; 0: no arrays
};

// Jobs in the order of their first runs. pack: runs of one shape follow each other, in their order,
// as long as their expected seconds fit pack_s; what is not known how long takes, or is longer by
// itself, has a job of its own. A packed job's limit is the sum of its runs'. Arrays hold runs of
// one shape and one limit. Both: Error(usage) is the caller's; pack is taken.
std::vector<JobGroup> group_jobs(std::span<const RunToPlace> runs, const Grouping& grouping);

}  // namespace tessera::submit
