// SPDX-License-Identifier: Apache-2.0
// Counts this program's heap allocations.
#pragma once

namespace tessera::trainer::test {

// Returns the calls of operator new so far, by any thread.
long allocations();

}  // namespace tessera::trainer::test
