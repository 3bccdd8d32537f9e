// SPDX-License-Identifier: Apache-2.0
#include "collect/sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tessera::collect {

namespace {

// Decimal places that leave three significant digits.
int places_for_three(double value) {
  const double magnitude = std::floor(std::log10(std::abs(value)));
  return std::clamp(2 - static_cast<int>(magnitude), 0, 12);
}

}  // namespace

std::string three_digits(double value) {
  if (!std::isfinite(value)) return {};
  if (value == 0) return "0";
  int places = places_for_three(value);
  // 99.96 rounds to 100.0: one digit more than three.
  const double unit = std::pow(10.0, places);
  const double rounded = std::round(value * unit) / unit;
  if (rounded != 0) places = places_for_three(rounded);
  return fmt::format("{:.{}f}", value, places);
}

std::string two_places(double value) {
  return std::isfinite(value) ? fmt::format("{:.2f}", value) : std::string();
}

std::string short_count(std::int64_t count) {
  const auto value = static_cast<double>(count);
  for (const auto& [unit, letter] : {std::pair{1e12, "t"}, {1e9, "b"}, {1e6, "m"}, {1e3, "k"}}) {
    // From 999.5 on, three digits need the larger unit.
    if (value >= 0.9995 * unit) return three_digits(value / unit) + letter;
  }
  return fmt::format("{}", count);
}

}  // namespace tessera::collect
