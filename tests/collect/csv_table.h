// SPDX-License-Identifier: Apache-2.0
// Reads tables back as a spreadsheet or a browser would, to test the writers.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::test {

using Table = std::vector<std::map<std::string, std::string>>;

// RFC 4180, also with line ends inside quotes.
inline std::vector<std::vector<std::string>> csv_records(std::string_view text) {
  std::vector<std::vector<std::string>> records(1, {std::string()});
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      records.back().back() += '"';
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      records.back().emplace_back();
    } else if (c == '\n' && !quoted) {
      if (i + 1 < text.size()) records.emplace_back(1);
    } else {
      records.back().back() += c;
    }
  }
  return records;
}

inline Table csv_table(std::string_view text) {
  const auto records = csv_records(text);
  Table table;
  for (std::size_t r = 1; r < records.size(); ++r) {
    auto& row = table.emplace_back();
    for (std::size_t i = 0; i < records[0].size(); ++i) row[records[0][i]] = records[r].at(i);
  }
  return table;
}

// Cells of a "| a | b |" line, escapes undone.
inline std::vector<std::string> markdown_cells(std::string_view line) {
  std::vector<std::string> cells(1);
  for (std::size_t i = 1; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size()) {
      cells.back() += line[++i];
    } else if (line[i] == '|') {
      cells.emplace_back();
    } else {
      cells.back() += line[i];
    }
  }
  cells.pop_back();
  for (std::string& cell : cells) {
    cell.erase(0, cell.find_first_not_of(' '));
    cell.erase(cell.find_last_not_of(' ') + 1);
  }
  return cells;
}

}  // namespace tessera::test
