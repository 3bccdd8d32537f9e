// SPDX-License-Identifier: Apache-2.0
#include "lib/base/terminal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <span>

#include "lib/base/text.h"

namespace tessera {

namespace {

constexpr std::string_view kGap = "  ";

// Code points: what a terminal gives a column each, but for wide and combining ones.
std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string padded(const std::string& cell, std::size_t width, bool right_aligned) {
  const std::string blanks(width - characters(cell), ' ');
  return right_aligned ? blanks + cell : cell + blanks;
}

// "model=7b seq_len=2048" of the columns named.
std::string cells_text(const TextTable& table, const std::vector<std::string>& row,
                       std::span<const std::size_t> columns) {
  std::vector<std::string> parts;
  for (const std::size_t column : columns) {
    if (!row[column].empty())
      parts.push_back(fmt::format("{}={}", table.columns[column].title, row[column]));
  }
  return fmt::format("{}", fmt::join(parts, " "));
}

}  // namespace

std::size_t terminal_width(std::FILE* stream) {
  winsize size{};
  const bool known = ::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 20;
  return known ? size.ws_col : 80;
}

std::string text_table(TextTable table, std::size_t width, std::size_t shown) {
  // Text of a log must not move the cursor or end a line.
  for (auto& row : table.rows) {
    for (std::string& cell : row)
      std::ranges::replace_if(cell, [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
  }
  const std::vector<TextColumn>& columns = table.columns;
  const std::vector<std::vector<std::string>>& rows = table.rows;
  if (rows.empty()) return {};
  std::vector<std::size_t> common;
  std::vector<std::size_t> told_apart;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const bool agree =
        std::ranges::all_of(rows, [&](const auto& row) { return row[i] == rows[0][i]; });
    (agree && !columns[i].always_shown ? common : told_apart).push_back(i);
  }
  std::string text;
  if (const std::string same = cells_text(table, rows.front(), common); !same.empty())
    text = paragraph("Common: " + same, width, 0, 2) + "\n";

  const std::span rows_shown(rows.data(), std::min(shown, rows.size()));
  std::vector<std::size_t> widths;
  std::size_t line_width = 0;
  for (const std::size_t column : told_apart) {
    std::size_t most = characters(columns[column].title);
    for (const auto& row : rows_shown) most = std::max(most, characters(row[column]));
    widths.push_back(most);
    line_width += most + (widths.size() > 1 ? kGap.size() : 0);
  }
  if (line_width > width) {
    for (const auto& row : rows_shown)
      text += paragraph(cells_text(table, row, told_apart), width, 0, 2);
    return text;
  }
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (std::size_t i = 0; i < told_apart.size(); ++i) {
      const TextColumn& column = columns[told_apart[i]];
      if (i > 0) line += kGap;
      line += padded(cell_of(told_apart[i]), widths[i], column.right_aligned);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_line([&](std::size_t column) { return columns[column].title; });
  for (const auto& row : rows_shown) add_line([&](std::size_t column) { return row[column]; });
  return text;
}

}  // namespace tessera
