#include "collect/writer_markdown.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "collect/columns.h"

namespace tessera::collect {

namespace {

using runlog::Status;

bool measured(const Row& row) {
  return row.status == Status::ok || row.status == Status::partial;
}

std::string line_of(const std::vector<std::string>& cells) {
  return fmt::format("| {} |\n", fmt::join(cells, " | "));
}

std::string head_of(const std::vector<std::string>& names) {
  return line_of(names) + line_of(std::vector<std::string>(names.size(), "---"));
}

std::string group_of(const Row& row) {
  return fmt::format("{}, {}", row.gpu.empty() ? "unknown device" : row.gpu,
                     row.facts.precision.value_or("unknown precision"));
}

// A mark or a missing MFU is a footnote of the model's cell.
std::string footnotes(const Row& row) {
  std::string text;
  for (const Mark mark : row.marks) text += fmt::format(" [^{}]", to_text(mark));
  if (!row.no_mfu.empty()) text += " [^no-mfu]";
  return text;
}

std::string_view explanation(Mark mark) {
  switch (mark) {
    case Mark::partial:
      return "cut short, or fewer than 5 steps measured: the figures are of few steps.";
    case Mark::shared:
      return "other work used the same machine, during the run or while its peak was measured.";
    case Mark::throttled:
      return "the device lowered its clock (column `throttled` of the CSV).";
    case Mark::assumed:
      return "facts that the log lacks were given by hand.";
    case Mark::emulated:
      return "the device has no units for this precision; it is divided by the fp32 peak.";
    case Mark::stale:
      return "a newer attempt, of another build, did not end ok.";
  }
  return "";
}

std::string measured_table(std::span<const Row* const> rows) {
  const auto published = columns().first(kPublishedColumns);
  std::vector<std::string> cells;
  for (const Column& column : published) cells.emplace_back(column.name);
  std::string text = head_of(cells);
  for (const Row* row : rows) {
    cells.clear();
    for (const Column& column : published)
      cells.push_back(markdown_cell(short_text(column.value(*row), column.style)));
    cells[0] += footnotes(*row);
    text += line_of(cells);
  }
  return text;
}

std::string unmeasured_table(std::span<const Row* const> rows) {
  constexpr std::string_view kShown[] = {"Model",
                                         "SeqLen (T)",
                                         "# GPUs",
                                         "GPU",
                                         "Precision",
                                         "MicroBatchSize",
                                         "GlobalBatchSize",
                                         "Sharding Strategy",
                                         "Activation Checkpointing",
                                         "status",
                                         "reason",
                                         "attempts",
                                         "run"};
  std::vector<const Column*> shown;
  for (const std::string_view name : kShown) {
    shown.push_back(&*std::ranges::find(columns(), name, &Column::name));
  }
  std::vector<std::string> cells(std::begin(kShown), std::end(kShown));
  std::string text = head_of(cells);
  for (const Row* row : rows) {
    cells.clear();
    for (const Column* column : shown)
      cells.push_back(markdown_cell(short_text(column->value(*row), column->style)));
    text += line_of(cells);
  }
  return text;
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
    text += "* HFU of selective checkpointing counts the operations that were computed again.\n";
  std::set<std::string> peaks;
  for (const Row* row : rows) {
    if (!row->peak_tflops) continue;
    peaks.insert(fmt::format("{}: {} TFLOP/s a device ({})", group_of(*row),
                             four_digits(*row->peak_tflops), row->peak_source));
  }
  for (const std::string& peak : peaks) text += fmt::format("* Peak of {}.\n", markdown_cell(peak));
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
  for (const auto& [mark, name] : Names<Mark>::table) {
    const bool used = std::ranges::any_of(rows, [m = mark](const Row* row) {
      return std::ranges::find(row->marks, m) != row->marks.end();
    });
    if (used) text += fmt::format("[^{0}]: {0}: {1}\n", name, explanation(mark));
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
  for (const Row& row : rows) {
    if (!measured(row)) {
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
  if (!without.empty()) text += "\n## Without a result\n\n" + unmeasured_table(without);
  if (!with_figures.empty()) {
    text += "\n" + legend(with_figures) + footnote_texts(with_figures);
  }
  return text;
}

}  // namespace tessera::collect
