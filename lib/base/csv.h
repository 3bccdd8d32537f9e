// SPDX-License-Identifier: Apache-2.0
// CSV files as tables: RFC 4180 with LF or CRLF line ends. The first line names the columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct CsvRow {
  std::int64_t line = 0;           // of the file, from 1, where the row begins
  std::vector<std::string> cells;  // as many as there are columns
};

struct CsvTable {
  std::string name;  // of the file, for messages
  std::vector<std::string> columns;
  std::vector<CsvRow> rows;

  // Error(input) if there is no such column.
  std::size_t column(std::string_view column_name) const;
};

// Cells may be quoted and then hold commas, line ends and doubled quotes. Error(input) at
// `name`:line for text without a line of columns, a row of another length, a quote inside an
// unquoted cell or one that does not end.
CsvTable parse_csv(std::string_view text, const std::string& name);

}  // namespace tessera
