// SPDX-License-Identifier: Apache-2.0
// Durations as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera::sweep {

// Seconds of "90s", "30m", "2h", "1h30m", "1d" or "[HH:]MM:SS"; nothing for anything else or for
// zero.
std::optional<std::int64_t> parse_duration(std::string_view text);

inline constexpr std::string_view kDurationFix = "write it like 90s, 30m, 2h, 1h30m or 04:00:00";

}  // namespace tessera::sweep
