// SPDX-License-Identifier: Apache-2.0
// The columns of the results, in order: one table for every format.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "collect/row.h"

namespace tessera::collect {

// monostate: not known, not measured or not applicable.
using Cell = std::variant<std::monostate, std::string, std::int64_t, std::uint64_t, double, bool>;

// How a table for people shows the numbers of a column.
enum class Style : std::uint8_t {
  plain,    // whole, or three significant digits below 100
  percent,  // two places
  rate,     // as plain; published rounded down to a whole number
};

struct Column {
  std::string_view name;
  Cell (*value)(const Row&);
  Style style = Style::plain;
};

// The first 20 are the published ones, by name and order.
inline constexpr std::size_t kPublishedColumns = 20;
std::span<const Column> columns();

// For a file: shortest digits that read back the same; True and False, as published.
std::string exact_text(const Cell& cell);
// For people.
std::string short_text(const Cell& cell, Style style);
// As MosaicML's tables have it: rates rounded down, percentages with at most two places.
std::string published_text(const Cell& cell, Style style);

}  // namespace tessera::collect
