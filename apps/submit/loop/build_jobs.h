// SPDX-License-Identifier: Apache-2.0
// From a planned run to what a cluster is given.
#pragma once

#include <string>
#include <vector>

#include "apps/submit/loop/job_groups.h"
#include "apps/submit/loop/preparation.h"
#include "lib/cluster/scheduler.h"

namespace tessera::submit {

// Where the run of a point may be placed.
RunToPlace place_of(const sweep::Planned& point, const SubmitOptions& options);

// How runs may share jobs on this cluster. There are no arrays where only so many jobs may be in
// flight: an array is there as a whole.
Grouping grouping_of(cluster::Scheduler& scheduler, const SubmitOptions& options);

// The jobs that would be handed over if nothing had ever been submitted: of every point and repeat,
// as first attempts. Reads and writes nothing.
std::vector<cluster::Job> planned_jobs(const sweep::Expansion& plan, cluster::Scheduler& scheduler,
                                       const SubmitOptions& options);

// The place of the next run of a job that is to have so many; nothing for a run alone.
std::optional<sweep::InJob> in_job_of(const cluster::Job& job, std::size_t runs);

// A job without its runs.
cluster::Job build_job(const std::string& project, const std::vector<ledger::RunRef>& refs,
                       const RunShape& shape, bool array, std::int64_t time_limit_s);

}  // namespace tessera::submit
