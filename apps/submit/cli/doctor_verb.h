// SPDX-License-Identifier: Apache-2.0
// `submit doctor NAME...`: whether clusters are as their files say.
#pragma once

#include "lib/cli/command.h"

namespace tessera::apps {

void add_doctor(cli::Command& submit);

}  // namespace tessera::apps
