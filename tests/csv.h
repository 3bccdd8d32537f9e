// SPDX-License-Identifier: Apache-2.0
// A CSV file as rows of named cells, for the published tables that tests compare with.
#pragma once

#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace tessera::test {

using CsvRow = std::map<std::string, std::string>;

// Cells of one line; quotes may hold commas, a doubled quote is not expected.
inline std::vector<std::string> csv_cells(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  return cells;
}

inline std::vector<CsvRow> read_csv(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::string line;
  std::getline(in, line);
  const auto names = csv_cells(line);
  std::vector<CsvRow> rows;
  while (std::getline(in, line)) {
    const auto values = csv_cells(line);
    CsvRow& row = rows.emplace_back();
    for (std::size_t i = 0; i < names.size(); ++i) row[names[i]] = values.at(i);
  }
  return rows;
}

}  // namespace tessera::test
