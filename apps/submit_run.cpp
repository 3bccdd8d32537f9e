#include "apps/submit_run.h"

#include "lib/base/error.h"

namespace tessera::apps {

int run_plan(const SubmitRequest& request, const Plan& plan) {
  require_runnable(request, plan);
  throw Error(ExitCode::refused, "--RUN", "is not there yet");
}

int run_status(const SubmitRequest&) {
  throw Error(ExitCode::refused, "status", "is not there yet");
}

int run_cancel(const SubmitRequest&) {
  throw Error(ExitCode::refused, "cancel", "is not there yet");
}

}  // namespace tessera::apps
