// SPDX-License-Identifier: Apache-2.0
// What a submit does before it hands anything over: finds out what became of what earlier submits
// left, and which runs are to start, in which jobs.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "apps/submit/loop/job_groups.h"
#include "apps/submit/loop/submit_state.h"
#include "lib/ledger/ledger.h"
#include "lib/sweep/expand.h"

namespace tessera::submit {

// A job that is still to be handed over.
struct WaitingJob {
  std::vector<ledger::RunRef> refs;
  RunShape shape;
  bool array = false;
  std::int64_t time_limit_s = 0;
  int replies_lost = 0;
};

// Settles, appends plan lines and selects; jobs of earlier submits that are still open are live
// then. `known`: the ledger as it is now. `plan` must outlive the state. Errors are those of
// submit_plan(), and interrupted: nothing was handed over then.
std::deque<WaitingJob> reconcile(SubmitState& state, ledger::Contents known,
                                 const sweep::Expansion& plan);

}  // namespace tessera::submit
