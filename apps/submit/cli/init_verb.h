// `submit init NAME`: a commented cluster file from what Slurm says of its site.
#pragma once

#include "lib/cli/command.h"

namespace tessera::apps {

void add_init(cli::Command& submit);

}  // namespace tessera::apps
