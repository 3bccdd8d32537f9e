// SPDX-License-Identifier: Apache-2.0
// Whether a device that the driver calls so is an entry of the GPU catalogue. Thread-safe; compiled
// expressions are kept by each thread, for a report asks the same of each of its rows.
#pragma once

#include <cstdint>
#include <string>

#include "lib/hardware/gpu.h"

namespace tessera::hardware {

// Resource managers write driver's names in lower case.
enum class LetterCase : std::uint8_t { counts, does_not_count };

// One of match holds, none of not.
bool is_called(const Gpu& gpu, const std::string& device_name,
               LetterCase letter_case = LetterCase::counts);

}  // namespace tessera::hardware
