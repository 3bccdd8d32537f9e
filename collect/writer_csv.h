// SPDX-License-Identifier: Apache-2.0
// results.csv: RFC 4180 with LF line ends, UTF-8, every column, exact digits.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "collect/row.h"

namespace tessera::collect {

std::string csv(std::span<const Row> rows);

// One field, quoted where commas, quotes or line ends need it.
std::string csv_field(std::string_view text);

}  // namespace tessera::collect
