// SPDX-License-Identifier: Apache-2.0
// Whether a device computes here what it should: `trainer selftest`. For a machine that one does
// not know, and the first thing to run on a new GPU.
#pragma once

#include <cstdio>

#include "trainer/selftest/options.h"

namespace tessera::trainer {

// Prints a line for each check as it is done, those that fail with the difference and what was
// allowed, at last how many held. True if all did. Error as open_gpu. Of a GPU each case is named
// on stderr before it begins ("case 3 NAME"), and one that leaves the GPU in error ends its part.
bool selftest(const SelftestOptions& options, std::FILE* out);

}  // namespace tessera::trainer
