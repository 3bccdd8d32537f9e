// SPDX-License-Identifier: Apache-2.0
// `submit init NAME`: a commented cluster file from what a site says of itself.
#pragma once

#include "lib/cli/command.h"

namespace tessera::apps {

void add_init(cli::Command& submit);

}  // namespace tessera::apps
