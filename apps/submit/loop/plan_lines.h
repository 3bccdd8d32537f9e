// SPDX-License-Identifier: Apache-2.0
// The plan lines of the ledger: what a submit selected and dropped.
#pragma once

#include <vector>

#include "lib/ledger/ledger.h"
#include "lib/sweep/expand.h"

namespace tessera::submit {

std::vector<ledger::PlannedPoint> planned_points(const sweep::Expansion& plan,
                                                 const std::string& project, int repeats);

// In lines of bounded length; nothing that is the ledger's last word already. `contents`: of the
// ledger as it is. Error(io).
void append_plan(ledger::Ledger& ledger, const ledger::Contents& contents,
                 const std::vector<ledger::PlannedPoint>& planned,
                 const std::vector<sweep::Dropped>& dropped);

}  // namespace tessera::submit
