// SPDX-License-Identifier: Apache-2.0
// Quantities as people read them, the same in every program.
#pragma once

#include <string>

namespace tessera {

// "1m 05s", "2h 03m"; "0.4s" below ten seconds.
std::string duration_text(double seconds);

}  // namespace tessera
