// Times for records. Durations come from the monotonic clock; the clocks of two hosts are never
// subtracted.
#pragma once

#include <string>

namespace tessera {

// "2026-11-29T12:41:11.204Z"
std::string utc_now();

// Seconds of the monotonic clock.
double monotonic_seconds();

}  // namespace tessera
