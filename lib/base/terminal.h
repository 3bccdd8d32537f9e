// SPDX-License-Identifier: Apache-2.0
// Text laid out for a terminal.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The width of the terminal behind `stream`, in characters; 80 if it is none or does not say.
std::size_t terminal_width(std::FILE* stream);

struct TextColumn {
  std::string title;
  bool right_aligned = false;  // numbers
  bool always_shown = false;   // also where all rows agree
};

// Rows of one cell a column.
struct TextTable {
  std::vector<TextColumn> columns;
  std::vector<std::vector<std::string>> rows;
};

// The table in lines of at most `width` characters, as long as no word is longer. Columns in which
// all rows agree are told once, above the table: "Common: gpus=8 precision=amp_bf16". If what is
// left is too wide, each row is a block instead: "model=7b seq_len=2048 ...", wrapped. Empty
// cells are left out of blocks and of what is common. Control characters become blanks. `shown`:
// print the first rows alone, but judge by all.
std::string text_table(TextTable table, std::size_t width, std::size_t shown);

}  // namespace tessera
