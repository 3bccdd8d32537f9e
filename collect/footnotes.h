// SPDX-License-Identifier: Apache-2.0
// What a reader must know before comparing rows, in words: the notes below results.md and below the
// table on a terminal.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "collect/row.h"

namespace tessera::collect {

struct Footnote {
  std::string_view name;  // of a mark, or "shared-peak"
  std::string_view text;
};

// In the order in which they are printed.
std::span<const Footnote> footnotes();

// The names of a row's notes: "no-mfu" too, whose text is the row's own (Row::no_mfu).
std::vector<std::string_view> footnotes_of(const Row& row);

// Whether the row has figures to print: its run ended ok or in part.
bool has_figures(const Row& row);

}  // namespace tessera::collect
