// SPDX-License-Identifier: Apache-2.0
#include "lib/base/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lib/base/error.h"

namespace tessera {

namespace {

class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  bool at_end() const { return at_ == text_.size(); }

  CsvRow row() {
    CsvRow row{.line = line_, .cells = {}};
    row.cells.push_back(cell());
    while (peek() == ',') {
      ++at_;
      row.cells.push_back(cell());
    }
    end_line();
    return row;
  }

 private:
  // '\0' at the end; the text itself has none.
  char peek() const { return at_end() ? '\0' : text_[at_]; }

  [[noreturn]] void fail(std::int64_t line, std::string_view what, std::string_view fix) const {
    throw Error(ExitCode::input, fmt::format("{}:{}", name_, line), what, fix);
  }

  std::string cell() {
    if (peek() == '"') return quoted();
    const std::size_t end = std::min(text_.find_first_of(",\n\r\"", at_), text_.size());
    std::string cell(text_.substr(at_, end - at_));
    at_ = end;
    if (peek() == '"')
      fail(line_, "a quote inside an unquoted cell", "quote the cell and double the quote");
    return cell;
  }

  std::string quoted() {
    const std::int64_t first = line_;
    std::string cell;
    for (++at_; !at_end(); ++at_) {
      if (text_[at_] == '"') {
        ++at_;
        if (peek() != '"') return cell;
      }
      if (text_[at_] == '\n') ++line_;
      cell += text_[at_];
    }
    fail(first, "a quoted cell does not end", "close it with a quote");
  }

  void end_line() {
    if (at_end()) return;
    if (text_.substr(at_).starts_with("\r\n")) ++at_;
    if (peek() != '\n')
      fail(line_, "text behind a quoted cell, or a carriage return inside a line",
           "a cell ends with a comma or the line");
    ++at_;
    ++line_;
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
  std::int64_t line_ = 1;
};

}  // namespace

std::size_t CsvTable::column(std::string_view column_name) const {
  const auto found = std::ranges::find(columns, column_name);
  if (found == columns.end()) {
    throw Error(ExitCode::input, name, fmt::format("no column '{}'", column_name),
                suggestion(column_name, columns));
  }
  return static_cast<std::size_t>(found - columns.begin());
}

CsvTable parse_csv(std::string_view text, const std::string& name) {
  CsvReader reader(text, name);
  CsvTable table{.name = name, .columns = {}, .rows = {}};
  if (reader.at_end())
    throw Error(ExitCode::input, name, "empty", "the first line must name the columns");
  table.columns = reader.row().cells;
  while (!reader.at_end()) {
    table.rows.push_back(reader.row());
    const CsvRow& row = table.rows.back();
    if (row.cells.size() != table.columns.size()) {
      throw Error(ExitCode::input, fmt::format("{}:{}", name, row.line),
                  fmt::format("{} cells for {} columns", row.cells.size(), table.columns.size()));
    }
  }
  return table;
}

}  // namespace tessera
