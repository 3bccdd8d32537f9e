// SPDX-License-Identifier: Apache-2.0
// A plan as its clusters see it: which of them it has points for, each one's share of them, and
// what the request asks of a submission there.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/submit/loop/submit.h"
#include "apps/submit/plan/plan.h"
#include "apps/submit/request.h"

namespace tessera::apps {

// The clusters that points are left on, those that keep a queue first: jobs wait there while this
// machine works. They are the plan's own.
std::vector<const cluster::Cluster*> clusters_of(const Plan& plan);

// Where all clusters of the plan have their runs. Error(conflict).
std::filesystem::path workspace_of(const SubmitRequest& request, const Plan& plan,
                                   const std::vector<const cluster::Cluster*>& clusters);

// A cluster's share of the plan.
sweep::Expansion share_of(const Plan& plan, const std::string& cluster, bool with_dropped);

// Error(refused) where the request asks for what is stale and the trainer's build cannot be asked
// here.
submit::SubmitOptions options_of(const SubmitRequest& request, const Plan& plan,
                                 const cluster::Cluster& cluster,
                                 const std::filesystem::path& workspace);

}  // namespace tessera::apps
