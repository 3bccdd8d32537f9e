// SPDX-License-Identifier: Apache-2.0
#include "lib/base/numbers.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "lib/base/error.h"

namespace tessera {

namespace {

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool leading_zero(std::string_view digits) {
  return digits.size() > 1 && digits.front() == '0';
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::string_view magnitude = text;
  const bool negative = magnitude.starts_with('-');
  if (negative) magnitude.remove_prefix(1);
  if (magnitude.starts_with("2^")) {
    const std::string_view exponent = magnitude.substr(2);
    if (!all_digits(exponent) || exponent.size() > 2 || leading_zero(exponent)) return std::nullopt;
    const int n =
        exponent.size() == 1 ? exponent[0] - '0' : (exponent[0] - '0') * 10 + exponent[1] - '0';
    if (n > 62) return std::nullopt;
    const std::int64_t value = std::int64_t{1} << n;
    return negative ? -value : value;
  }
  if (!all_digits(magnitude) || leading_zero(magnitude)) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  if (const auto integer = parse_integer(text)) return static_cast<double>(*integer);
  std::string_view magnitude = text;
  if (magnitude.starts_with('-')) magnitude.remove_prefix(1);
  if (magnitude.empty() || magnitude.front() < '0' || magnitude.front() > '9') return std::nullopt;
  const std::string_view whole = magnitude.substr(0, magnitude.find_first_not_of("0123456789"));
  if (leading_zero(whole) || magnitude.find('^') != std::string_view::npos) return std::nullopt;
  double value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc{} || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::string integer_fault(std::string_view text) {
  std::string_view magnitude = text;
  if (magnitude.starts_with('-')) magnitude.remove_prefix(1);
  if (magnitude.starts_with("2^")) {
    const std::string_view exponent = magnitude.substr(2);
    if (exponent.starts_with('-')) return "has a negative exponent";
    if (all_digits(exponent) && leading_zero(exponent)) return "has a leading zero in its exponent";
    return all_digits(exponent) ? "does not fit 64 bits" : "is not 2^n with a decimal n";
  }
  if (all_digits(magnitude))
    return leading_zero(magnitude) ? "has a leading zero" : "does not fit 64 bits";
  return "is not a decimal integer";
}

std::int64_t require_integer(std::string_view text, std::string_view where, std::int64_t low,
                             std::int64_t high) {
  const auto value = parse_integer(text);
  if (!value) {
    throw Error(ExitCode::usage, where, fmt::format("'{}' {}", text, integer_fault(text)),
                "write a decimal integer or 2^n");
  }
  if (*value < low || *value > high) {
    throw Error(ExitCode::usage, where, fmt::format("{} is out of range", text),
                fmt::format("from {} to {}", low, high));
  }
  return *value;
}

std::string shortest(double value) {
  if (value == 0) return "0";
  char buffer[40];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, result.ptr};
}

}  // namespace tessera
