// SPDX-License-Identifier: Apache-2.0
// How long the points of a plan will take on clusters that give time limits, and what that costs.
#pragma once

#include <string>

#include "apps/submit/loop/submit.h"
#include "apps/submit/plan/plan.h"
#include "lib/sweep/time_estimate.h"

namespace tessera::apps {

// The time of a point on a cluster with time limits; `request.time_s` is the limit if given.
sweep::RunTime time_of(const SubmitRequest& request, const Plan& plan, const sweep::Planned& point);

// For submit_plan; empty on this machine, which has no limits.
std::function<submit::RunTime(const sweep::Planned&)> times_of(const SubmitRequest& request,
                                                               const Plan& plan,
                                                               const cluster::Cluster& cluster);

// GPU-hours, limits and where the estimates come from, a few lines for people of at most `width`
// characters; "" if no point is on such a cluster.
std::string time_lines(const SubmitRequest& request, const Plan& plan, std::size_t width);

}  // namespace tessera::apps
