// SPDX-License-Identifier: Apache-2.0
// A plan of small points that differ in their batch, made without a grid.
#pragma once

#include <string>

#include "lib/point/identity.h"
#include "lib/sweep/expand.h"
#include "tests/lib/sweep/grids.h"

namespace tessera::test {

// Point i of `points`, from 1, has a global batch of i.
inline sweep::Expansion tiny_plan(int points, const std::string& cluster) {
  sweep::Expansion plan;
  for (int i = 1; i <= points; ++i) {
    sweep::Planned planned;
    planned.label = "tiny";
    planned.point.model = small_model("tiny", 2).shape;
    planned.point.gpu = "cpu";
    planned.point.cluster = cluster;
    planned.point.global_batch = i;
    planned.point.microbatch_size = 1;
    planned.point.seq_len = 16;
    planned.point = sweep::normalized(planned.point);
    planned.id = sweep::point_id(planned.point);
    plan.points.push_back(planned);
  }
  return plan;
}

// The name of point i's run in project p.
inline std::string tiny_run(int point, const std::string& cluster, int repeat = 1) {
  const sweep::Planned planned = tiny_plan(point, cluster).points.back();
  return sweep::run_name("p", sweep::slug("tiny", planned.point, "p"), planned.id, repeat);
}

}  // namespace tessera::test
