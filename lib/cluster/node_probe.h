// SPDX-License-Identifier: Apache-2.0
// Parts of Scheduler::probe that all kinds of cluster share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/base/command.h"
#include "lib/cluster/scheduler.h"

namespace tessera::cluster {

std::string first_line(std::string_view text);
// Without empty ones.
std::vector<std::string> lines_of(std::string_view text);

// From `trainer --version` and `trainer --capabilities`: both answers, or the fault of the first
// that failed.
void take_trainer_answers(const CommandResult& version, const CommandResult& capabilities,
                          NodeReport& report);

}  // namespace tessera::cluster
