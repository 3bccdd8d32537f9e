// SPDX-License-Identifier: Apache-2.0
// results.md: the 20 published columns for people, grouped by GPU and precision as the published
// page is, runs without a result below, and what every figure means.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "collect/row.h"

namespace tessera::collect {

// What results.md is headed with: the project, or several.
std::string markdown(std::span<const Row> rows, std::string_view title);

// A table's cell: one line, '|' and backslashes escaped.
std::string markdown_cell(std::string_view text);

}  // namespace tessera::collect
