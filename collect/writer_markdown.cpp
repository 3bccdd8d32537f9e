// SPDX-License-Identifier: Apache-2.0
#include "collect/writer_markdown.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "collect/axes.h"
#include "collect/columns.h"
#include "collect/footnotes.h"
#include "lib/base/text.h"

namespace tessera::collect {

namespace {

std::string line_of(const std::vector<std::string>& cells) {
  return fmt::format("| {} |\n", fmt::join(cells, " | "));
}

std::string head_of(const std::vector<std::string>& names) {
  return line_of(names) + line_of(std::vector<std::string>(names.size(), "---"));
}

std::string group_of(const Row& row) {
  return fmt::format("{}, {}", row.gpu.empty() ? "unknown device" : row.gpu,
                     row.facts.ran<&Point::precision>().value_or("unknown precision"));
}

// Cells of one row; a percentage above 100 cannot be read past.
std::string cell_of(const Column& column, const Row& row) {
  const Cell value = column.value(row);
  std::string text = markdown_cell(short_text(value, column.style));
  const auto* number = std::get_if<double>(&value);
  if (column.style == Style::percent && number != nullptr && *number > 100)
    text = fmt::format("**{} (!)** [^above-peak]", text);
  // What a run would have found out.
  if (column.name == "MicroBatchSize" && text.empty() && row.point &&
      row.point->microbatch_size == sweep::kAutoMicrobatch) {
    text = "auto";
  }
  return text;
}

// `settings` columns, the axes that tell rows apart among `peers` beside them, `rest` columns.
std::string table_of(std::span<const Row* const> rows, std::span<const Row* const> peers,
                     std::span<const std::string_view> settings,
                     std::span<const std::string_view> rest) {
  std::vector<std::string_view> shown(settings.begin(), settings.end());
  shown.insert(shown.end(), rest.begin(), rest.end());
  std::vector<Axis> axes = varying_axes(peers, shown);
  std::erase_if(axes, [&](const Axis& axis) {
    return std::ranges::all_of(rows, [&](const Row* row) { return axis.text(*row).empty(); });
  });
  const auto cells_of = [](std::span<const std::string_view> names, const Row& row,
                           std::vector<std::string>& cells) {
    for (const std::string_view name : names)
      cells.push_back(cell_of(*std::ranges::find(columns(), name, &Column::name), row));
  };
  std::vector<std::string> cells(settings.begin(), settings.end());
  for (const Axis& axis : axes) cells.push_back(markdown_cell(axis.name));
  cells.insert(cells.end(), rest.begin(), rest.end());
  std::string text = head_of(cells);
  for (const Row* row : rows) {
    cells.clear();
    cells_of(settings, *row, cells);
    for (const Axis& axis : axes) cells.push_back(markdown_cell(axis.text(*row)));
    cells_of(rest, *row, cells);
    if (has_figures(*row)) {
      for (const std::string_view name : footnotes_of(*row)) {
        // Stands at the figure itself.
        if (name != to_text(Mark::above_peak)) cells[0] += fmt::format(" [^{}]", name);
      }
    }
    text += line_of(cells);
  }
  return text;
}

std::string measured_table(std::span<const Row* const> rows) {
  std::vector<std::string_view> names;
  for (const Column& column : columns().first(kPublishedColumns)) names.push_back(column.name);
  return table_of(rows, rows, names, {});
}

// Told apart from the measured rows too: they say what the others would have been.
std::string unmeasured_table(std::span<const Row* const> rows,
                             std::span<const Row* const> all_rows) {
  constexpr std::string_view kSettings[] = {"Model",
                                            "SeqLen (T)",
                                            "# GPUs",
                                            "GPU",
                                            "Precision",
                                            "MicroBatchSize",
                                            "GlobalBatchSize",
                                            "Sharding Strategy",
                                            "Activation Checkpointing"};
  constexpr std::string_view kRest[] = {"status", "reason", "attempts", "run"};
  return table_of(rows, all_rows, kSettings, kRest);
}

// "10" or "5 to 10".
template <class Get>
std::string range_of(std::span<const Row* const> rows, Get get) {
  std::int64_t low = get(*rows.front());
  std::int64_t high = low;
  for (const Row* row : rows) {
    low = std::min(low, get(*row));
    high = std::max(high, get(*row));
  }
  return low == high ? fmt::format("{}", low) : fmt::format("{} to {}", low, high);
}

// A peak is known to four digits at most, but three would make 990 of 989.5.
std::string four_digits(double value) {
  return fmt::format("{:.4g}", value);
}

// A line for each group, device, number of threads and source that differ; where one was measured
// more than once, the range.
std::string peaks_of(std::span<const Row* const> rows) {
  std::map<std::string, std::set<std::string>> devices;
  std::map<std::string, std::set<std::int64_t>> threads;
  for (const Row* row : rows) {
    if (!row->peak_tflops) continue;
    devices[group_of(*row)].insert(row->facts.device_name.value_or(""));
    threads[group_of(*row)].insert(row->facts.ran<&Point::threads>().value_or(0));
  }
  std::map<std::pair<std::string, std::string>, std::pair<double, double>> ranges;
  for (const Row* row : rows) {
    if (!row->peak_tflops) continue;
    std::string heading = group_of(*row);
    // A catalogue's peak is one for all that its entry matches.
    const bool is_cpu = row->gpu == "cpu";
    if (is_cpu && devices[group_of(*row)].size() > 1)
      heading += fmt::format(", {}", row->facts.device_name.value_or("unknown device"));
    if (threads[group_of(*row)].size() > 1 && row->facts.ran<&Point::threads>()) {
      heading += ", " + counted(*row->facts.ran<&Point::threads>(), "thread");
    }
    const double peak = *row->peak_tflops;
    auto& [low, high] =
        ranges.try_emplace({heading, row->peak_source}, std::pair(peak, peak)).first->second;
    low = std::min(low, peak);
    high = std::max(high, peak);
  }
  std::string text;
  for (const auto& [key, range] : ranges) {
    const std::string low = four_digits(range.first);
    const std::string high = four_digits(range.second);
    const std::string peak = low == high ? low : fmt::format("{} to {}", low, high);
    text += fmt::format("* Peak of {}: {} TFLOP/s a device ({}{}).\n", markdown_cell(key.first),
                        peak, markdown_cell(key.second),
                        low == high ? "" : "; each row's own is `peak_tflops` of the CSV");
  }
  return text;
}

std::string legend(std::span<const Row* const> rows) {
  std::string text = "## How to read this\n\n";
  text +=
      "* **MFU** = model FLOP/s of one device / its peak; **Model TFLOP** is the former, per "
      "second. "
      "Convention `mosaic`: 3 x (2 N S + 4 L a S^2) a sequence, N parameters, S tokens, L layers, "
      "a attention width; attention counts the full square.\n"
      "* **HFU** adds the forward pass that full activation checkpointing repeats (4/3 MFU).\n";
  const bool selective = std::ranges::any_of(
      rows, [](const Row* row) { return row->flops_convention.find(';') != std::string::npos; });
  if (selective)
    text +=
        "* HFU of selective checkpointing, or of that of some blocks, counts the operations that "
        "were computed again.\n";
  text += peaks_of(rows);
  std::set<std::string> bases;
  for (const Row* row : rows) bases.insert(row->footer.token_basis);
  text += fmt::format("* Tokens: {} (`full`: every position of every sequence).\n",
                      fmt::join(bases, ", "));
  text += fmt::format(
      "* Warm-up steps, not measured: {}. Measured steps: {}; throughput is their tokens / their "
      "time, data wait inside.\n",
      range_of(rows, [](const Row& row) { return row.footer.steps.warmup; }),
      range_of(rows, [](const Row& row) { return row.footer.steps.measured; }));
  if (std::ranges::any_of(rows, [](const Row* row) { return row->repeats_asked > 1; })) {
    text +=
        "* Repeats: a row is the run with the median throughput; `repeat_spread_pct` of the CSV is "
        "(fastest - slowest) / median.\n";
  }
  if (std::ranges::any_of(rows, [](const Row* row) { return row->gpu == "cpu"; }))
    text += "* On a CPU, `# GPUs` counts ranks, and the peak is that of an fp32 matrix product.\n";
  return text;
}

std::string footnote_texts(std::span<const Row* const> rows) {
  std::string text;
  for (const auto& [name, explanation] : footnotes()) {
    const bool used = std::ranges::any_of(rows, [n = name](const Row* row) {
      const auto names = footnotes_of(*row);
      return std::ranges::find(names, n) != names.end();
    });
    if (used) text += fmt::format("[^{0}]: {0}: {1}\n", name, explanation);
  }
  std::set<std::string> reasons;
  for (const Row* row : rows) {
    if (!row->no_mfu.empty()) reasons.insert(row->no_mfu);
  }
  if (!reasons.empty()) {
    text += fmt::format("[^no-mfu]: no MFU: {}.\n",
                        markdown_cell(fmt::format("{}", fmt::join(reasons, "; "))));
  }
  return text.empty() ? text : "\n" + text;
}

}  // namespace

std::string markdown_cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|' || c == '\\') escaped += '\\';
    escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return escaped;
}

std::string markdown(std::span<const Row> rows, std::string_view title) {
  std::vector<std::vector<const Row*>> groups;
  std::vector<const Row*> with_figures;
  std::vector<const Row*> without;
  std::vector<const Row*> all;
  for (const Row& row : rows) {
    all.push_back(&row);
    if (!has_figures(row)) {
      without.push_back(&row);
      continue;
    }
    if (groups.empty() || group_of(*groups.back().front()) != group_of(row)) groups.emplace_back();
    groups.back().push_back(&row);
    with_figures.push_back(&row);
  }
  std::string text = fmt::format("# {}\n", title);
  for (const auto& group : groups) {
    text += fmt::format("\n## {}\n\n", group_of(*group.front()));
    text += measured_table(group);
  }
  if (!without.empty()) text += "\n## Without a result\n\n" + unmeasured_table(without, all);
  if (!with_figures.empty()) {
    text += "\n" + legend(with_figures) + footnote_texts(with_figures);
  }
  return text;
}

}  // namespace tessera::collect
