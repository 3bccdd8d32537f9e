// SPDX-License-Identifier: Apache-2.0
// Runs of a project by what a person writes for them.
#pragma once

#include <string>
#include <vector>

#include "lib/ledger/ledger.h"

namespace tessera::jobs {

// What is to be tried where a project has no ledger: of an Error.
inline constexpr const char* kWhereIsIt =
    "check the project's name and --workspace; a ledger that is lost is made anew by submit "
    "rebuild NAME";

// Every run that was planned or started, in the order of the plans.
std::vector<std::string> known_runs(const ledger::Contents& contents);

// The name of the n-th repeat of the point whose first is `first`.
std::string name_of_repeat(const std::string& first, int repeat);

// The one that `text` names: a whole name, else a piece (an id) that only one has. Error(empty) if
// none has it, Error(usage) that names up to 5 if several do.
std::string find_run(const std::string& text, const std::vector<std::string>& runs,
                     const std::string& project);

}  // namespace tessera::jobs
