// Which project and runs the names behind a verb mean.
#pragma once

#include <string>
#include <vector>

#include "apps/submit/request.h"

namespace tessera::apps {

struct VerbTarget {
  std::string project;
  std::vector<std::string> runs;  // as written
};

// "[PROJECT] [RUN...]". With --project, or if the first holds the "--" of run names, all are runs
// (of the project before it); with no name at all the project is the last one used. Error(usage).
VerbTarget target_of(const SubmitRequest& request);

}  // namespace tessera::apps
