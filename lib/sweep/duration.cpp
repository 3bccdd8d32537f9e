// SPDX-License-Identifier: Apache-2.0
#include "lib/sweep/duration.h"

#include <vector>

namespace tessera::sweep {

namespace {

constexpr std::int64_t kLongest = std::int64_t{366} * 86400;

// Digits at `at`, at most 7; moves `at` behind them.
std::optional<std::int64_t> digits(std::string_view text, std::size_t& at) {
  const std::size_t start = at;
  std::int64_t value = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9' && at - start < 7)
    value = value * 10 + (text[at++] - '0');
  if (at == start) return std::nullopt;
  return value;
}

std::int64_t seconds_of(char unit) {
  switch (unit) {
    case 'd':
      return 86400;
    case 'h':
      return 3600;
    case 'm':
      return 60;
    case 's':
      return 1;
    default:
      return 0;
  }
}

std::optional<std::int64_t> clock(std::string_view text) {
  std::vector<std::int64_t> parts;
  std::size_t at = 0;
  while (true) {
    const std::size_t start = at;
    const auto part = digits(text, at);
    if (!part || (!parts.empty() && (at - start != 2 || *part > 59))) return std::nullopt;
    parts.push_back(*part);
    if (at == text.size()) break;
    if (text[at++] != ':') return std::nullopt;
  }
  if (parts.size() < 2 || parts.size() > 3) return std::nullopt;
  std::int64_t total = 0;
  for (const std::int64_t part : parts) total = total * 60 + part;
  return total;
}

std::optional<std::int64_t> units(std::string_view text) {
  std::int64_t total = 0;
  std::int64_t last_unit = seconds_of('d') + 1;
  std::size_t at = 0;
  while (at < text.size()) {
    const auto count = digits(text, at);
    if (!count || at == text.size()) return std::nullopt;
    const std::int64_t unit = seconds_of(text[at++]);
    if (unit == 0 || unit >= last_unit) return std::nullopt;
    last_unit = unit;
    total += *count * unit;
  }
  return total;
}

}  // namespace

std::optional<std::int64_t> parse_duration(std::string_view text) {
  const auto total = text.find(':') != std::string_view::npos ? clock(text) : units(text);
  if (!total || *total <= 0 || *total > kLongest) return std::nullopt;
  return total;
}

}  // namespace tessera::sweep
