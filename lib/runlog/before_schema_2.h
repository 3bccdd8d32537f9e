// SPDX-License-Identifier: Apache-2.0
// What logs before schema 2, and ledgers of that time, say in words alone: the one place where a
// program of ours reads a sentence. Newer files have a typed value and never come here.
#pragma once

#include <optional>
#include <string_view>

#include "lib/hardware/peaks.h"
#include "lib/runlog/record.h"

namespace tessera::runlog {

// What ended the run of a footer, or of a final ledger line, that has no `ended_by`.
EndedBy ended_by_in_words(Status status, std::string_view reason);

// What disturbed a peak, by the words of its source; nothing if they name nothing.
std::optional<hardware::Disturbance> disturbance_in_words(std::string_view source);

}  // namespace tessera::runlog
