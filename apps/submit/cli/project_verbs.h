// SPDX-License-Identifier: Apache-2.0
// The verbs for a project that is there already: status, cancel, logs, rerun, rebuild.
#pragma once

#include "lib/cli/command.h"

namespace tessera::apps {

void add_project_verbs(cli::Command& submit);

}  // namespace tessera::apps
