// SPDX-License-Identifier: Apache-2.0
// A sweep as a value: axes, rules and limits, as flags or a sweep file gave them. expand.h turns it
// into points.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/sweep/axes.h"
#include "lib/sweep/constraint.h"

namespace tessera::sweep {

// One dimension of the product. A choice of a zip group sets several keys at once.
struct Axis {
  std::vector<std::string> keys;
  std::vector<Assignment> choices;
};

// A product of axes, the first outermost.
struct Block {
  std::vector<Axis> axes;
  std::string where;
};

struct Override {
  Expression when;
  Assignment set;
  std::string where;
};

// Drops the points for which `when` holds, or that have one of the values of each of `partial`.
struct Exclude {
  std::optional<Expression> when;
  std::vector<std::vector<Setting>> partial;
  std::string reason;
  std::string where;
};

// What a run may cost, and how runs share a cluster.
struct Limits {
  std::optional<std::int64_t> time_s;  // nothing: auto
  std::optional<std::int64_t> max_in_flight;
  std::optional<double> max_gpu_hours;
  std::optional<std::int64_t> pack_s;
  std::string stop_axis_after_oom;  // microbatch_size, seq_len or nothing
};

struct Grid {
  std::string project;        // empty: not said
  std::string project_where;  // for messages
  Assignment defaults;
  std::optional<Block> matrix;  // matrix x zip x batch; absent: no grid points
  std::vector<Override> overrides;
  std::vector<Exclude> excludes;
  std::vector<Block> includes;
  Assignment forced;               // of flags: win over everything in the file
  std::optional<Expression> only;  // of flags: other points are dropped
  int repeats = 1;
  Limits limits;
};

// Every setting of `key` anywhere in the grid, in order: what has to be looked up before expansion.
std::vector<Setting> settings_of(const Grid& grid, std::string_view key);

}  // namespace tessera::sweep
