// SPDX-License-Identifier: Apache-2.0
// What the points of a plan need of memory: drops those that cannot fit, resolves automatic
// microbatches, and prints where the memory goes.
#pragma once

#include <string>

#include "apps/submit/plan/plan.h"

namespace tessera::apps {

// Drops with the reason `memory` and the missing GiB what does not fit its device; an automatic
// microbatch becomes the largest that fits (Planned::microbatch). Points on devices whose memory is
// not known stay as they are.
void plan_memory(Plan& plan);

// One table for each set of points that need the same, largest first. Lines have at most `width`
// characters.
std::string memory_tables(const Plan& plan, std::size_t width);

}  // namespace tessera::apps
