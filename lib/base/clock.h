// SPDX-License-Identifier: Apache-2.0
// Times for records. Durations come from the monotonic clock; the clocks of two hosts are never
// subtracted.
#pragma once

#include <optional>
#include <string>

namespace tessera {

// "2026-11-29T12:41:11.204Z"
std::string utc_now();

// Seconds since a time that utc_now of this host gave; negative if the clock was set back. Nothing
// if the text is no such time.
std::optional<double> seconds_since_utc(const std::string& utc);

// Seconds of the monotonic clock.
double monotonic_seconds();

}  // namespace tessera
