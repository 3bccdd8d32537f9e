// SPDX-License-Identifier: Apache-2.0
#include "lib/base/clock.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <ctime>

namespace tessera {

std::string utc_now() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  std::tm parts{};
  ::gmtime_r(&now.tv_sec, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     now.tv_nsec / 1000000);
}

std::optional<double> seconds_since_utc(const std::string& utc) {
  std::tm parts{};
  int milliseconds = 0;
  char end = 0;
  const int read = std::sscanf(utc.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3d%c", &parts.tm_year,
                               &parts.tm_mon, &parts.tm_mday, &parts.tm_hour, &parts.tm_min,
                               &parts.tm_sec, &milliseconds, &end);
  if (read != 8 || end != 'Z') return std::nullopt;
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<double>(now.tv_sec - ::timegm(&parts)) +
         static_cast<double>(now.tv_nsec) / 1e9 - milliseconds / 1e3;
}

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace tessera
