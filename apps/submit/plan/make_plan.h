// SPDX-License-Identifier: Apache-2.0
// Makes the plan of a request: expands its grid, asks trainers what they can, plans memory.
#pragma once

#include "apps/submit/plan/plan.h"
#include "apps/submit/request.h"

namespace tessera::apps {

// Error(usage) where a flag names what is not there, Error(input) where a file does. An empty plan
// is no error here.
Plan make_plan(const SubmitRequest& request);

}  // namespace tessera::apps
