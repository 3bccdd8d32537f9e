// SPDX-License-Identifier: Apache-2.0
// What a plan would submit, without submitting it: submit --render and --check.
#pragma once

#include "apps/submit/plan/plan.h"
#include "apps/submit/request.h"

namespace tessera::apps {

// Both return the exit code.

// Writes the specifications and scripts of the plan's jobs, as first attempts, below
// `request.render`; Error(refused) where a file is there already.
int render_plan(const SubmitRequest& request, const Plan& plan);

// Asks each cluster whether it would take the plan's jobs. Error(refused) if not all.
int check_plan(const SubmitRequest& request, const Plan& plan);

}  // namespace tessera::apps
