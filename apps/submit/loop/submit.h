// SPDX-License-Identifier: Apache-2.0
// Submits the points of a plan to one cluster: look what is there, select, record, hand over,
// record; and, where it stays, wait for the ends and record those.
//
// Each job is an intent in the ledger (synced to disk) before the cluster hears of it, and has its
// id there as soon as the cluster has said it. A submit that dies anywhere in between is followed
// by one that finds what it left: no job is lost, none is doubled.
#pragma once

#include <atomic>

#include "apps/submit/loop/options.h"
#include "lib/cluster/scheduler.h"
#include "lib/sweep/expansion.h"

namespace tessera::submit {

// Takes the project's lock, brings the ledger up to what has happened, appends plan lines, then
// what happens to each job. Error(locked, io, conflict, refused, unreachable): nothing is
// half-written then, and what runs on this machine has been waited for.
//
// `interrupted`: no more is handed over. Runs on this machine are told to end and are waited for;
// jobs on a cluster go on.
SubmitReport submit_plan(const sweep::Expansion& plan, cluster::Scheduler& scheduler,
                         const SubmitOptions& options, const SubmitEvents& events,
                         const std::atomic<bool>& interrupted);

}  // namespace tessera::submit
