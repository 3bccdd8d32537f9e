// SPDX-License-Identifier: Apache-2.0
#include "collect/writer_terminal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "collect/axes.h"
#include "collect/columns.h"
#include "collect/footnotes.h"
#include "lib/base/terminal.h"
#include "lib/base/text.h"

namespace tessera::collect {

namespace {

struct Shown {
  std::string_view column;  // of columns()
  std::string_view title;
  bool right_aligned = false;
  bool always_shown = false;
};

constexpr Shown kSettings[] = {
    {"Model", "Model", false, true},
    {"SeqLen (T)", "SeqLen", true},
    {"# GPUs", "GPUs", true},
    {"GPU", "GPU"},
    {"Precision", "Precision"},
    {"MicroBatchSize", "MicroBatch", true},
    {"GlobalBatchSize", "GlobalBatch", true},
    {"Sharding Strategy", "Sharding"},
    {"Activation Checkpointing", "Checkpointing"},
};
constexpr Shown kFigures[] = {
    {"MFU", "MFU", true, true},
    {"HFU", "HFU", true, true},
    {"Throughput (T/s)", "T/s", true, true},
    {"Throughput (T/s/GPU)", "T/s/GPU", true},
};
constexpr Shown kEnds[] = {
    {"status", "status", false, true},
    {"run", "run", false, true},
    {"reason", "reason", false, true},
};

using Rows = std::vector<const Row*>;

std::string cell_of(std::string_view name, const Row& row) {
  const Column& column = *std::ranges::find(columns(), name, &Column::name);
  return short_text(column.value(row), column.style);
}

// `settings`, the axes that tell rows apart beside them, `rest`, and the marks of rows with
// figures.
std::string table_of(const Rows& rows, std::span<const Shown> rest, bool with_marks,
                     std::size_t width) {
  std::vector<std::string_view> names;
  for (const Shown& shown : kSettings) names.push_back(shown.column);
  const std::vector<Axis> axes = varying_axes(rows, names);
  TextTable table;
  const auto add_columns = [&](std::span<const Shown> all) {
    for (const Shown& shown : all) {
      table.columns.push_back({std::string(shown.title), shown.right_aligned, shown.always_shown});
    }
  };
  add_columns(kSettings);
  for (const Axis& axis : axes) table.columns.push_back({axis.name});
  add_columns(rest);
  if (with_marks) table.columns.push_back({"marks"});
  for (const Row* row : rows) {
    std::vector<std::string>& cells = table.rows.emplace_back();
    for (const Shown& shown : kSettings) cells.push_back(cell_of(shown.column, *row));
    for (const Axis& axis : axes) cells.push_back(axis.text(*row));
    for (const Shown& shown : rest) cells.push_back(cell_of(shown.column, *row));
    if (with_marks) cells.push_back(fmt::format("{}", fmt::join(footnotes_of(*row), " ")));
  }
  return text_table(table, width, table.rows.size());
}

}  // namespace

std::string terminal_table(std::span<const Row> rows, std::size_t width) {
  Rows measured;
  Rows others;
  for (const Row& row : rows) (has_figures(row) ? measured : others).push_back(&row);
  std::string text;
  if (!measured.empty()) {
    const bool one_device = std::ranges::all_of(
        measured, [](const Row* row) { return row->facts.ran<&Point::gpus>() == 1; });
    const std::span figures(kFigures);
    text +=
        table_of(measured, one_device ? figures.first(figures.size() - 1) : figures, true, width);
    std::string notes;
    for (const Footnote& note : footnotes()) {
      const bool is_used = std::ranges::any_of(measured, [&](const Row* row) {
        const auto names = footnotes_of(*row);
        return std::ranges::find(names, note.name) != names.end();
      });
      if (is_used) notes += paragraph(fmt::format("{}: {}", note.name, note.text), width, 0, 2);
    }
    if (!notes.empty()) text += "\n" + notes;
  }
  if (!others.empty()) {
    if (!text.empty()) text += "\n";
    text += "Without a result:\n" + table_of(others, kEnds, false, width);
  }
  return text;
}

}  // namespace tessera::collect
