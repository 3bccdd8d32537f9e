// What submit does for a project that is there already. `request.names` are PROJECT and runs.
#pragma once

#include "apps/submit/request.h"

namespace tessera::apps {

// Each returns the exit code. Error as in apps/submit/project/status.h.
int run_status(const SubmitRequest& request);
int run_cancel(const SubmitRequest& request);

}  // namespace tessera::apps
