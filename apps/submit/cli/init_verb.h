// `submit init NAME`: a commented cluster file from what Slurm says of its site.
#pragma once

#include "apps/submit/request.h"

namespace tessera::apps {

// Writes NAME.yaml into the user's cluster files and prints what comes next; returns the exit code.
// Error(usage) for a name that is none of a cluster file or a partition that is not there,
// Error(conflict) if there is such a file, Error(unreachable) if Slurm does not answer.
int run_init(const SubmitRequest& request);

}  // namespace tessera::apps
