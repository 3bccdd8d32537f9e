// SPDX-License-Identifier: Apache-2.0
// What Slurm's words for a job's state mean. Pure functions.
#pragma once

#include <string_view>

#include "lib/cluster/scheduler.h"
#include "lib/cluster/slurm/text.h"

namespace tessera::cluster {

// `job`, `phase` and all that follows from them. `queue` and `accounts`: of the same job, either
// may be missing, not both; the queue says more of what has not ended, the accounts of what has.
JobState slurm_state(const SlurmRecord* queue, const SlurmRecord* accounts);

// Whether a job that waits for this reason never starts unless somebody acts.
bool slurm_never_starts(std::string_view reason);

}  // namespace tessera::cluster
