// SPDX-License-Identifier: Apache-2.0
// The plan of a request: which points would run, which not and why.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/submit/request.h"
#include "apps/submit/trainers/capabilities.h"
#include "apps/submit/trainers/trainers.h"
#include "lib/cluster/cluster_file.h"
#include "lib/hardware/catalogue.h"
#include "lib/sweep/expansion.h"

namespace tessera::apps {

struct Plan {
  std::string project;
  int repeats = 1;
  sweep::Expansion expansion;  // points in normal form with label and id, drops with reasons
  std::map<std::string, cluster::Cluster> clusters;  // by the name that points have
  hardware::Catalogue catalogue;
  // What each local cluster's trainer can do, by the cluster's name; without silent ones.
  std::map<std::string, submit::Capabilities> capabilities;
  // What `submit doctor` heard from the other clusters' trainers, by cluster and GPU.
  std::map<std::pair<std::string, std::string>, submit::NodeTrainer> node_trainers;
  // What the trainer beside submit can do; nothing: it does not answer. It stands in for the
  // trainers on nodes that nobody has asked.
  std::optional<submit::Capabilities> own_trainer;
};

// The part of a run's name between project and id.
std::string slug_of(const Plan& plan, const sweep::Planned& point);

// Error(refused) for what can be planned but not run yet, each by its name: clusters of kinds that
// come later, flags without effect.
void require_runnable(const SubmitRequest& request, const Plan& plan);
// Its reason and what would be right, or "".
std::string obstacle(const SubmitRequest& request, const Plan& plan);

// Asks the trainers of local clusters what they can, and looks up what those of others said.
void find_capabilities(Plan& plan);

// Whose fault is a point's: that of the machine where its trainer has been asked counts, or not.
enum class Judged : std::uint8_t { there, anywhere };

// What --RUN does beforehand: the points that their trainer lacks something for are dropped. What
// is only written down (--render) is kept wherever a machine could run it.
void drop_incapable(Plan& plan, Judged judged);

// For people, one line for each GPU of a cluster that points are left on and no catalogue has.
std::vector<std::string> catalogue_notes(const Plan& plan);

// For people, one line each: what --RUN would drop so, and threads beyond this machine's CPUs.
std::vector<std::string> run_notes(const Plan& plan);
// For people who are about to run it: points of which no trainer has said whether it can run them.
std::vector<std::string> unasked_notes(const Plan& plan);

}  // namespace tessera::apps
