// SPDX-License-Identifier: Apache-2.0
// Numbers as people write them: one parser for flags, YAML and expressions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// Decimal digits with an optional minus sign, or "2^n" (also "-2^n"). No leading zeros ("011" is
// nobody's number: some readers take it as 9), no plus sign, no spaces, no exponent; nothing that
// does not fit int64. Otherwise nothing.
std::optional<std::int64_t> parse_integer(std::string_view text);

// A finite decimal number: "1.2e-4", "67", "0.5". Integers follow parse_integer (so "2^10" is 1024,
// "011" is none).
std::optional<double> parse_number(std::string_view text);

// What parse_integer found wrong, for a message: "not a decimal integer", "has a leading zero",
// "does not fit 64 bits".
std::string integer_fault(std::string_view text);

// As parse_integer, but throws Error(code usage) at `where` when it is no integer or outside [low,
// high].
std::int64_t require_integer(std::string_view text, std::string_view where, std::int64_t low,
                             std::int64_t high);

// An integer in arithmetic that could leave 64 bits.
constexpr double real(std::int64_t value) {
  return static_cast<double>(value);
}

// Quotients and multiples that are not below a / b and n, of positive integers.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
constexpr std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return ceil_div(n, multiple) * multiple;
}

// Fewest digits that read back as the same double; "." decimal point; integers without ".0".
std::string shortest(double value);

}  // namespace tessera
