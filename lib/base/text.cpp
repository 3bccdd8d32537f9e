// SPDX-License-Identifier: Apache-2.0
#include "lib/base/text.h"

#include <fmt/format.h>

#include <cmath>

namespace tessera {

std::string duration_text(double seconds) {
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  const auto whole = std::lround(seconds);
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
}

}  // namespace tessera
