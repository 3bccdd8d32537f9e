// SPDX-License-Identifier: Apache-2.0
// Paragraphs and tables for a terminal.
#include "lib/base/terminal.h"

#include <doctest/doctest.h>

#include <sstream>

#include "lib/base/text.h"

using namespace tessera;

namespace {

constexpr std::size_t kAll = 100;

TextTable table_of(std::vector<std::vector<std::string>> rows) {
  return {.columns = {{"model", false, true}, {"gpus", true}, {"precision"}},
          .rows = std::move(rows)};
}

}  // namespace

TEST_CASE("a paragraph breaks at blanks, indents what follows and keeps long words whole") {
  CHECK(paragraph("one two three", 80, 0, 2) == "one two three\n");
  CHECK(paragraph("one two three", 9, 0, 2) == "one two\n  three\n");
  CHECK(paragraph("one two three", 9, 2, 4) == "  one\n    two\n    three\n");
  CHECK(paragraph("an incomprehensible word", 8, 0, 0) == "an\nincomprehensible\nword\n");
  CHECK(paragraph("two\nlines", 80, 0, 2) == "two\n  lines\n");
}

TEST_CASE("1 run, 2 runs") {
  CHECK(counted(0, "run") == "0 runs");
  CHECK(counted(1, "run") == "1 run");
  CHECK(counted(std::size_t{1000}, "run") == "1000 runs");
}

TEST_CASE("a table has the columns that vary, and tells the others once above") {
  CHECK(text_table(table_of({{"7b", "8", "bf16"}, {"13b", "16", "bf16"}}), 80, kAll) ==
        "Common: precision=bf16\n"
        "\n"
        "model  gpus\n"
        "7b        8\n"
        "13b      16\n");
  // The model is always shown, also where all rows agree.
  CHECK(text_table(table_of({{"7b", "8", "bf16"}}), 80, kAll) ==
        "Common: gpus=8 precision=bf16\n\nmodel\n7b\n");
  CHECK(text_table(table_of({}), 80, kAll).empty());
}

TEST_CASE("all rows decide what varies, also those that are not shown") {
  const std::string text = text_table(table_of({{"7b", "8", "bf16"}, {"7b", "16", "bf16"}}), 80, 1);
  CHECK(text == "Common: precision=bf16\n\nmodel  gpus\n7b        8\n");
}

TEST_CASE("empty cells are told neither above nor in a block") {
  CHECK(text_table(table_of({{"7b", "8", ""}, {"13b", "16", ""}}), 80, kAll) ==
        "model  gpus\n7b        8\n13b      16\n");
  CHECK(text_table(table_of({{"7b", "8", ""}, {"13b", "", "a-long-precision"}}), 24, kAll) ==
        "model=7b gpus=8\nmodel=13b\n  precision=a-long-precision\n");
}

TEST_CASE("a table that is too wide is a block a row, no line wider than asked for") {
  TextTable table;
  for (int column = 0; column < 12; ++column) {
    table.columns.push_back({"setting_" + std::to_string(column)});
  }
  for (const std::string value : {"first", "second"})
    table.rows.emplace_back(table.columns.size(), value);
  for (const std::size_t width : {40U, 80U, 120U}) {
    std::istringstream lines(text_table(table, width, kAll));
    int blocks = 0;
    for (std::string line; std::getline(lines, line);) {
      CHECK(line.size() <= width);
      blocks += line.starts_with("setting_0=") ? 1 : 0;
    }
    CHECK(blocks == 2);
  }
}

TEST_CASE("control characters in a cell become blanks") {
  CHECK(text_table(table_of({{"a\nb", "8", ""}, {"\x1b[2J", "16", ""}}), 80, kAll) ==
        "model  gpus\na b       8\n [2J     16\n");
}

TEST_CASE("columns of names that are not ASCII stand below each other") {
  CHECK(text_table(table_of({{"größe", "8", "a"}, {"groß", "16", "b"}}), 80, kAll) ==
        "model  gpus  precision\n"
        "größe     8  a\n"
        "groß     16  b\n");
}
