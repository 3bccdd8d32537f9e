// The plan of a request: which points would run, which not and why.
#pragma once

#include <map>
#include <string>

#include "apps/submit_flags.h"
#include "lib/cluster/cluster_file.h"
#include "lib/sweep/expand.h"

namespace tessera::apps {

struct Plan {
  std::string project;
  int repeats = 1;
  sweep::Expansion expansion;  // points in normal form with label and id, drops with reasons
  std::map<std::string, cluster::Cluster> clusters;  // by the name that points have
  hardware::Catalogue catalogue;
};

// The part of a run's name between project and id.
std::string slug_of(const Plan& plan, const sweep::Planned& point);

// Error(usage) where a flag names what is not there, Error(input) where a file does. An empty plan
// is no error here.
Plan make_plan(const SubmitRequest& request);

// Error(refused) for what can be planned but not run yet, each by its name: clusters that are not
// local, an automatic microbatch, flags and limits without effect.
void require_runnable(const SubmitRequest& request, const Plan& plan);

}  // namespace tessera::apps
