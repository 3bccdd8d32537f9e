// SPDX-License-Identifier: Apache-2.0
#include "collect/writer_csv.h"

#include "collect/columns.h"

namespace tessera::collect {

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string csv(std::span<const Row> rows) {
  std::string text;
  const auto add_line = [&](auto field_of) {
    bool first = true;
    for (const Column& column : columns()) {
      if (!first) text += ',';
      first = false;
      text += csv_field(field_of(column));
    }
    text += '\n';
  };
  add_line([](const Column& column) { return std::string(column.name); });
  for (const Row& row : rows)
    add_line([&](const Column& column) { return exact_text(column.value(row)); });
  return text;
}

}  // namespace tessera::collect
