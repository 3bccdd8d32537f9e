// What submit does beyond planning.
#pragma once

#include "apps/plan.h"
#include "apps/submit_flags.h"

namespace tessera::apps {

// Submits the points of a plan; returns the exit code.
int run_plan(const SubmitRequest& request, const Plan& plan);

// The verbs; `request.names` are PROJECT and runs.
int run_status(const SubmitRequest& request);
int run_cancel(const SubmitRequest& request);

}  // namespace tessera::apps
