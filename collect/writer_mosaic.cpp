// SPDX-License-Identifier: Apache-2.0
#include "collect/writer_mosaic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "collect/columns.h"
#include "collect/writer_csv.h"
#include "collect/writer_markdown.h"

namespace tessera::collect {

namespace {

// Header and rows, each cell through `escaped`.
std::vector<std::vector<std::string>> cells_of(std::span<const Row> rows,
                                               std::string (*escaped)(std::string_view)) {
  const auto published = columns().first(kPublishedColumns);
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : published) lines[0].push_back(escaped(column.name));
  for (const Row& row : rows) {
    if (!row.tokens_per_s) continue;
    auto& line = lines.emplace_back();
    for (const Column& column : published)
      line.push_back(escaped(published_text(column.value(row), column.style)));
  }
  return lines;
}

}  // namespace

std::string mosaic_csv(std::span<const Row> rows) {
  std::string text;
  for (const auto& line : cells_of(rows, csv_field))
    text += fmt::format("{}\r\n", fmt::join(line, ","));
  return text;
}

std::string mosaic_markdown(std::span<const Row> rows) {
  auto lines = cells_of(rows, markdown_cell);
  lines.insert(lines.begin() + 1, std::vector<std::string>(kPublishedColumns, "---"));
  std::string text;
  for (const auto& line : lines) text += fmt::format("|  {} |\n", fmt::join(line, " | "));
  return text;
}

}  // namespace tessera::collect
