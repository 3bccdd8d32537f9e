// SPDX-License-Identifier: Apache-2.0
// Waiting for what a node leaves in the folder of a question (probe.h).
#pragma once

#include <string>

#include "lib/cluster/scheduler.h"

namespace tessera::cluster {

// `open`: the job that looks, which has been handed over. The folder is looked at often, the
// controller asked seldom. Error(interrupted) once `question.goes_on` says no, (refused) if the job
// will never start, (io) if it ended and left no report, (unreachable) as of query(); the job may
// be in the queue then.
NodeReport wait_for_node_report(const NodeQuestion& question, const OpenJob& open,
                                const std::string& token, Scheduler& scheduler);

}  // namespace tessera::cluster
