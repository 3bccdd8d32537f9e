// What submit does with runs and ledger of a project that is there already: their output, once
// more, the ledger anew.
#pragma once

#include "apps/submit/request.h"

namespace tessera::apps {

// Each returns the exit code. Errors as in apps/submit/project/run_output.h, rerun.h, submit.h,
// rebuild.h.
int run_logs(const SubmitRequest& request);
int run_rerun(const SubmitRequest& request);
int run_rebuild(const SubmitRequest& request);

}  // namespace tessera::apps
