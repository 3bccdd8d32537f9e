// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/plan/plan_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/base/terminal.h"
#include "lib/base/text.h"
#include "lib/point/point_values.h"
#include "lib/schedule/recompute.h"

namespace tessera::apps {

namespace {

constexpr std::size_t kRows = 40;
constexpr std::size_t kDropLines = 10;  // a reason
constexpr std::size_t kValues = 16;     // an axis

using Points = std::vector<sweep::Planned>;

struct Column {
  std::string title;
  bool right = false;  // numbers
  std::function<std::string(const sweep::Planned&)> cell;
  std::vector<std::string_view> tells = {};  // keys of the settings that it shows
};
using Columns = std::vector<Column>;

// A setting as it would be written.
template <class T>
Column setting_column(std::string title, const sweep::Field<T>& field) {
  return {std::move(title),
          std::is_integral_v<T> && !std::is_same_v<T, bool>,
          [&field](const sweep::Planned& p) { return sweep::value_text(field, field.in(p.point)); },
          {field.key}};
}

// Always shown, whether they vary or not.
Columns usual_columns() {
  using sweep::field_of;
  using sweep::Point;
  return {
      {"model", false, [](const sweep::Planned& p) { return p.label; }},
      setting_column("seq_len", field_of<&Point::seq_len>()),
      setting_column("cluster", field_of<&Point::cluster>()),
      setting_column("gpus", field_of<&Point::gpus>()),
      setting_column("gpu", field_of<&Point::gpu>()),
      setting_column("global_batch", field_of<&Point::global_batch>()),
      {"microbatch",
       true,
       [](const sweep::Planned& p) {
         if (p.point.microbatch_size != sweep::kAutoMicrobatch)
           return std::to_string(p.point.microbatch_size);
         return p.microbatch == 0 ? std::string("auto") : fmt::format("auto {}", p.microbatch);
       },
       {"microbatch_size"}},
      setting_column("precision", field_of<&Point::precision>()),
      setting_column("mixed", field_of<&Point::mixed_precision>()),
      setting_column("sharding", field_of<&Point::sharding_strategy>()),
      {"checkpointing",
       false,
       [](const sweep::Planned& p) {
         const std::string kind(to_text(p.point.activation_checkpointing));
         return p.point.checkpointing_blocks == memory::kAllBlocks
                    ? kind
                    : kind + " " + p.point.checkpointing_blocks;
       },
       {"activation_checkpointing", "checkpointing_blocks"}},
      {"warmup+measured",
       true,
       [](const sweep::Planned& p) {
         return fmt::format("{}+{}", p.point.warmup, p.point.steps - p.point.warmup);
       },
       {"steps", "warmup"}},
  };
}

using Texts = std::map<std::string, std::string>;

// A column for each name that any point has.
void add_texts(Columns& columns, const Points& points, const std::string& prefix,
               Texts sweep::Point::* texts) {
  std::set<std::string> names;
  for (const sweep::Planned& planned : points) {
    for (const auto& [name, value] : planned.point.*texts) names.insert(name);
  }
  for (const std::string& name : names) {
    columns.push_back({prefix + name, false, [name, texts](const sweep::Planned& p) -> std::string {
                         const Texts& set = p.point.*texts;
                         const auto found = set.find(name);
                         return found == set.end() ? "null" : found->second;
                       }});
  }
}

// Shown where they vary: else two points would look the same.
Columns other_columns(const Columns& usual, const Points& points) {
  Columns columns;
  sweep::each_axis_field([&](const auto& field) {
    const bool is_told = std::ranges::any_of(usual, [&](const Column& column) {
      return std::ranges::find(column.tells, field.key) != column.tells.end();
    });
    if (is_told) return;
    constexpr std::string_view kLong = "activation_";  // of cpu_offload: a title is short
    const std::size_t cut = field.key.starts_with(kLong) ? kLong.size() : 0;
    columns.push_back(setting_column(std::string(field.key.substr(cut)), field));
  });
  add_texts(columns, points, "env.", &sweep::Point::env);
  add_texts(columns, points, "identity.", &sweep::Point::identity);
  std::erase_if(columns, [&](const Column& column) {
    return std::ranges::all_of(points, [&](const sweep::Planned& p) {
      return column.cell(p) == column.cell(points.front());
    });
  });
  return columns;
}

Columns columns_of(const Points& points) {
  Columns columns = usual_columns();
  std::ranges::move(other_columns(columns, points), std::back_inserter(columns));
  columns.push_back({"id", false, [](const sweep::Planned& p) { return p.id; }});
  return columns;
}

std::string rows_of(const Columns& columns, const Points& points, std::size_t width,
                    std::size_t shown) {
  TextTable table;
  for (const Column& column : columns)
    table.columns.push_back(
        {column.title, column.right, column.title == "model" || column.title == "id"});
  for (const sweep::Planned& point : points) {
    auto& row = table.rows.emplace_back();
    for (const Column& column : columns) row.push_back(column.cell(point));
  }
  return text_table(table, width, shown);
}

struct Count {
  std::string cell;
  std::size_t points = 0;
};

// How many points have which cell: text in the order of first appearance, numbers ascending.
std::vector<Count> counts_of(const std::vector<sweep::Planned>& points, const Column& column) {
  std::vector<Count> counts;
  std::map<std::string, std::size_t> index;
  for (const sweep::Planned& point : points) {
    const std::string cell = column.cell(point);
    const auto [known, is_new] = index.try_emplace(cell, counts.size());
    if (is_new) counts.push_back({cell, 0});
    ++counts[known->second].points;
  }
  if (column.right) {
    std::ranges::stable_sort(counts, [](const Count& a, const Count& b) {
      return std::pair(a.cell.size(), a.cell) < std::pair(b.cell.size(), b.cell);
    });
  }
  return counts;
}

// "  model: 125m 54, 350m 12" for each column that varies.
std::string axes_of(const Columns& columns, const Points& points, std::size_t width) {
  std::string text;
  for (const Column& column : columns) {
    if (column.title == "id") continue;
    const std::vector<Count> counts = counts_of(points, column);
    if (counts.size() < 2) continue;
    if (counts.size() > kValues) {
      text += paragraph(fmt::format("{}: {} values, {} to {}", column.title, counts.size(),
                                    counts.front().cell, counts.back().cell),
                        width, 2, 4);
      continue;
    }
    std::vector<std::string> parts;
    for (const Count& count : counts)
      parts.push_back(fmt::format("{} {}", count.cell, count.points));
    text += paragraph(fmt::format("{}: {}", column.title, fmt::join(parts, ", ")), width, 2, 4);
  }
  return text;
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string drop_summary(const Plan& plan) {
  std::map<sweep::DropReason, std::size_t> counts;
  for (const sweep::Dropped& drop : plan.expansion.dropped) ++counts[drop.reason];
  if (counts.empty()) return {};
  std::vector<std::string> parts;
  for (const auto& [reason, count] : counts)
    parts.push_back(fmt::format("{} {}", count, to_text(reason)));
  return fmt::format("{} dropped: {}", plan.expansion.dropped.size(), fmt::join(parts, ", "));
}

std::string drop_lines(const Plan& plan, bool all_rows, std::size_t width) {
  const auto& dropped = plan.expansion.dropped;
  if (dropped.empty()) return {};
  std::string text = drop_summary(plan) + "\n";
  std::map<sweep::DropReason, std::size_t> shown;
  for (const sweep::Dropped& drop : dropped) {
    if (!all_rows && ++shown[drop.reason] > kDropLines) continue;
    std::vector<std::string> values;
    for (const auto& [key, value] : drop.values) {
      if (key != "model") values.push_back(fmt::format("{}={}", key, value));
    }
    text += paragraph(fmt::format("{}: {} ({} {})", to_text(drop.reason), drop.detail, drop.label,
                                  fmt::join(values, " ")),
                      width, 2, 4);
  }
  for (const auto& [reason, count] : shown) {
    if (count > kDropLines) {
      text += fmt::format("  {}: {} more, shown with --all\n", to_text(reason), count - kDropLines);
    }
  }
  return text;
}

std::string plan_table(const Plan& plan, bool all_rows, const std::string& obstacle,
                       std::size_t width) {
  const auto& points = plan.expansion.points;
  std::string text;
  if (!points.empty()) {
    const std::size_t count = all_rows ? points.size() : std::min(points.size(), kRows);
    const Columns columns = columns_of(points);
    text += rows_of(columns, points, width, count);
    if (count < points.size()) {
      text +=
          fmt::format("... {} more, shown with --all; points by axis:\n", points.size() - count);
      text += axes_of(columns, points, width);
    }
  }
  if (!points.empty() && !plan.expansion.dropped.empty()) text += "\n";
  text += drop_lines(plan, all_rows, width);
  if (!points.empty()) {
    text += fmt::format(
        "\n{}{} of project {}. {}\n", counted(points.size(), "point"),
        plan.repeats > 1 ? fmt::format(" x {} repeats", plan.repeats) : "", plan.project,
        obstacle.empty() ? "Submit with --RUN." : "--RUN would refuse it: " + obstacle);
  }
  return text;
}

std::string plan_json(const Plan& plan) {
  std::string text = "{\"points\":[";
  const char* separator = "\n";
  for (const sweep::Planned& each : plan.expansion.points) {
    text +=
        fmt::format(R"({}{{"id":"{}","label":{},"slug":"{}",{}"point":{}}})", separator, each.id,
                    quoted(each.label), slug_of(plan, each),
                    each.microbatch == 0 ? "" : fmt::format(R"("microbatch":{},)", each.microbatch),
                    sweep::point_json(each.point));
    separator = ",\n";
  }
  text += "],\"dropped\":[";
  separator = "\n";
  for (const sweep::Dropped& drop : plan.expansion.dropped) {
    std::string values;
    for (const auto& [key, value] : drop.values) {
      values += fmt::format("{}{}:{}", values.empty() ? "" : ",", quoted(key), quoted(value));
    }
    text += fmt::format(R"({}{{"reason":"{}","detail":{},"label":{},"values":{{{}}}}})", separator,
                        to_text(drop.reason), quoted(drop.detail), quoted(drop.label), values);
    separator = ",\n";
  }
  return text + "]}\n";
}

}  // namespace tessera::apps
