// SPDX-License-Identifier: Apache-2.0
// The results on a terminal (collect -p): fewer columns than results.md, within the terminal's
// width.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "collect/row.h"

namespace tessera::collect {

// Settings in which all rows agree are told once, above the table (lib/base/terminal.h). MFU and
// HFU in percent; T/s = tokens per second. Runs without a result stand in a table of their own, and
// what the marks mean stands below. Lines have at most `width` characters, as long as no word is
// longer.
std::string terminal_table(std::span<const Row> rows, std::size_t width);

}  // namespace tessera::collect
