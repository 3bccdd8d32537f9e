// SPDX-License-Identifier: Apache-2.0
#include "collect/axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "collect/columns.h"

namespace tessera::collect {

namespace {

std::string column_text(const Row& row, std::string_view name) {
  const auto column = std::ranges::find(columns(), name, &Column::name);
  return exact_text(column->value(row));
}

// A column of results.csv, which some tables show anyway and some do not.
Axis of_column(std::string name, std::string_view shown_as) {
  return {std::string(shown_as),
          [name = std::move(name)](const Row& row) { return column_text(row, name); }};
}

// Settings that the 20 columns tell, or one of those above.
constexpr std::string_view kTold[] = {"seq_len",
                                      "global_batch",
                                      "microbatch_size",
                                      "precision",
                                      "mixed_precision",
                                      "sharding_strategy",
                                      "activation_checkpointing",
                                      "checkpointing_blocks",
                                      "activation_cpu_offload",
                                      "gpus",
                                      "gpu",
                                      "cluster"};

using Texts = std::map<std::string, std::string>;

const Texts* environment_of(const Row& row) {
  if (row.point) return &row.point->env;
  return row.facts.env ? &*row.facts.env : nullptr;
}
const Texts* identity_of(const Row& row) {
  return row.point ? &row.point->identity : nullptr;
}

// An axis for each name that any row has.
void add_texts(std::vector<Axis>& axes, std::span<const Row* const> rows, const std::string& prefix,
               const Texts* (*texts_of)(const Row&)) {
  std::set<std::string> names;
  for (const Row* row : rows) {
    if (const Texts* texts = texts_of(*row)) {
      for (const auto& [name, value] : *texts) names.insert(name);
    }
  }
  for (const std::string& name : names) {
    axes.push_back({prefix + name, [name, texts_of](const Row& row) -> std::string {
                      const Texts* texts = texts_of(row);
                      if (texts == nullptr) return {};
                      const auto found = texts->find(name);
                      return found == texts->end() ? "not set" : found->second;
                    }});
  }
}

// Two known values; where `told_by` is a column, for rows with the same cell there.
bool varies(const Axis& axis, std::span<const Row* const> rows, std::string_view told_by) {
  std::map<std::string, std::string> seen;
  return std::ranges::any_of(rows, [&](const Row* row) {
    const std::string text = axis.text(*row);
    if (text.empty()) return false;
    const std::string known = told_by.empty() ? std::string() : column_text(*row, told_by);
    return seen.try_emplace(known, text).first->second != text;
  });
}

}  // namespace

std::vector<Axis> varying_axes(std::span<const Row* const> rows,
                               std::span<const std::string_view> shown) {
  std::vector<Axis> found;
  const auto is_shown = [&](std::string_view name) {
    return std::ranges::find(shown, name) != shown.end();
  };
  const auto add = [&](Axis axis, std::string_view told_by = {}) {
    if (varies(axis, rows, is_shown(told_by) ? told_by : std::string_view()))
      found.push_back(std::move(axis));
  };
  add(of_column("project", "project"));
  add(of_column("cluster", "cluster"), "GPU");
  add(of_column("label", "label"), "Model");
  add(of_column("device_name", "device_name"), "GPU");
  for (const std::string_view name : {"MP Mode", "Activation CPUOffload"}) {
    if (!is_shown(name)) add(of_column(std::string(name), name));
  }
  add(of_column("recompute", "recompute"), "Activation Checkpointing");
  add(of_column("microbatch_asked", "microbatch_size asked"), "MicroBatchSize");
  sweep::each_axis_field([&](const auto& field) {
    if (std::ranges::find(kTold, field.key) != std::end(kTold)) return;
    const std::string asked = fmt::format("{}_asked", field.key);
    const bool has_both = std::ranges::find(columns(), asked, &Column::name) != columns().end();
    add(of_column(has_both ? asked : std::string(field.key), field.key));
  });
  std::vector<Axis> named;
  add_texts(named, rows, "env.", environment_of);
  add_texts(named, rows, "identity.", identity_of);
  for (Axis& axis : named) add(std::move(axis));
  return found;
}

}  // namespace tessera::collect
