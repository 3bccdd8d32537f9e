// SPDX-License-Identifier: Apache-2.0
// Runs of a project as a plan of their own, so that they can be run again without their sweep.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "lib/sweep/expand.h"

namespace tessera::submit {

struct Rerun {
  sweep::Expansion plan;        // the points of the runs, each once, as they were planned
  std::set<std::string> named;  // the runs, for Selection::named
};

// `texts` name runs as find_run takes them. A point is what the ledger's plan says, or else the
// specification of the run's newest attempt that can be read; what no plan line holds (the
// microbatch that `auto` became, variables not to be set, the point it was derived from) is the
// specification's. Error(empty, usage) of find_run; Error(refused) if neither holds the point;
// Error(conflict) if what they hold has another name or id.
Rerun rerun_of(const std::filesystem::path& project_dir, const std::vector<std::string>& texts);

}  // namespace tessera::submit
