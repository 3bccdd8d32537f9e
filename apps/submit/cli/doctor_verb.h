// submit doctor: whether clusters are as their files say.
#pragma once

#include "apps/submit/request.h"

namespace tessera::apps {

// Prints the findings as they come. 0: nothing is to be mended; Error(refused) if something is,
// Error(unreachable) if something could not be asked, Error(interrupted).
int run_doctor(const SubmitRequest& request);

}  // namespace tessera::apps
