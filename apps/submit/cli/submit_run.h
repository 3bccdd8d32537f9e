// SPDX-License-Identifier: Apache-2.0
// Submitting a plan, one cluster after the other.
#pragma once

#include "apps/submit/plan/plan.h"
#include "apps/submit/request.h"

namespace tessera::apps {

// Submits the points of a plan; returns the exit code.
int run_plan(const SubmitRequest& request, const Plan& plan);

}  // namespace tessera::apps
