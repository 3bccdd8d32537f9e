// SPDX-License-Identifier: Apache-2.0
// Ctrl-C, SIGTERM and the end of the terminal as a flag that long work looks at.
#pragma once

#include <atomic>

namespace tessera::apps {

// From now on these signals set it and end nothing. One flag for the process.
const std::atomic<bool>& catch_interrupts();

}  // namespace tessera::apps
