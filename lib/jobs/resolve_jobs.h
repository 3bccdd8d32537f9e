// SPDX-License-Identifier: Apache-2.0
// Finds out what became of jobs that the ledger knows no end of.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "lib/jobs/live_jobs.h"

namespace tessera::jobs {

// Asks the cluster about all jobs at once, hands on each answer (`adopted`, then `ended`, in order)
// and returns those that are still open. Jobs whose hand-over was never confirmed are looked for
// until the cluster has not known them for its lookup_s, counted from the hand-over if that was on
// this host, else from now; `note` says that this takes its time. Error(unreachable) if it cannot
// be asked; while jobs are looked for only once that time is over. `interrupted`: what is not known
// yet is returned as it is.
std::vector<LiveJob> resolve_jobs(std::vector<LiveJob> jobs, cluster::Scheduler& scheduler,
                                  const IsCancelled& is_cancelled,
                                  const std::atomic<bool>& interrupted,
                                  const std::function<void(const ledger::Entry&)>& adopted,
                                  const std::function<void(const Ended&)>& ended,
                                  const std::function<void(const std::string&)>& note);

}  // namespace tessera::jobs
