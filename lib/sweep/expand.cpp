// SPDX-License-Identifier: Apache-2.0
#include "lib/sweep/expand.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "lib/sweep/point_builder.h"

namespace tessera::sweep {

namespace {

std::int64_t size_of(const Block& block) {
  std::int64_t size = 1;
  for (const Axis& axis : block.axes) {
    size *= static_cast<std::int64_t>(axis.choices.size());
    if (size > kMostPoints) {
      throw Error(ExitCode::input, block.where,
                  fmt::format("the grid has more than {} points", kMostPoints),
                  "split it or give fewer values");
    }
  }
  return size;
}

// A GPU that neither a cluster nor the catalogue knows is a typo, not a drop.
void require_known_gpus(const Grid& grid, const Inventory& inventory) {
  std::set<std::string> known;
  for (const auto& [name, cluster] : inventory.clusters) {
    for (const ClusterGpu& gpu : cluster.gpus) known.insert(gpu.name);
  }
  for (const hardware::Gpu& gpu : inventory.catalogue.gpus) known.insert(gpu.name);
  known.insert("cpu");
  for (const Setting& setting : settings_of(grid, "gpu")) {
    const auto& name = std::get<std::string>(setting.value);
    if (!known.contains(name)) {
      throw Error(ExitCode::input, setting.where, fmt::format("unknown GPU '{}'", name),
                  suggestion(name, std::vector<std::string>(known.begin(), known.end())));
    }
  }
}

class Expander {
 public:
  Expander(const Grid& grid, const Inventory& inventory)
      : grid_(grid),
        inventory_(inventory),
        overrides_matched_(grid.overrides.size()),
        excludes_matched_(grid.excludes.size()) {
    for (const Setting& setting : grid.forced) forced_.insert(setting.key);
  }

  // Calls `visit` with the draft of every element of the block's product, the last axis fastest.
  template <class Visit>
  void each(const Block& block, Visit visit) const {
    const std::int64_t size = size_of(block);
    for (std::int64_t index = 0; index < size; ++index) {
      PointBuilder draft(inventory_, block.where);
      std::int64_t rest = index;
      for (auto axis = block.axes.rbegin(); axis != block.axes.rend(); ++axis) {
        const auto count = static_cast<std::int64_t>(axis->choices.size());
        for (const Setting& setting : axis->choices[static_cast<std::size_t>(rest % count)])
          draft.set(setting);
        rest /= count;
      }
      for (const Setting& setting : grid_.forced) draft.set(setting);
      for (const Setting& setting : grid_.defaults) draft.set_if_absent(setting);
      draft.complete();
      visit(draft);
    }
  }

  Expansion run() {
    std::int64_t product = grid_.matrix ? size_of(*grid_.matrix) : 0;
    for (const Block& block : grid_.includes) product += size_of(block);
    if (product > kMostPoints) {
      throw Error(ExitCode::input, "", fmt::format("the sweep has {} points", product),
                  fmt::format("at most {}", kMostPoints));
    }
    if (grid_.matrix) {
      each(*grid_.matrix, [&](PointBuilder& draft) {
        override_values(draft);
        if (!excluded(draft)) place(draft);
      });
    }
    for (const Block& block : grid_.includes)
      each(block, [&](PointBuilder& draft) { place(draft); });
    note_unmatched();
    return std::move(result_);
  }

 private:
  void override_values(PointBuilder& draft) {
    for (std::size_t i = 0; i < grid_.overrides.size(); ++i) {
      const Override& rule = grid_.overrides[i];
      if (!rule.when.holds([&](std::string_view name) { return draft.lookup(name); })) continue;
      overrides_matched_[i] = true;
      for (const Setting& setting : rule.set) {
        if (!forced_.contains(setting.key)) draft.set(setting);
      }
    }
  }

  bool excluded(const PointBuilder& draft) {
    for (std::size_t i = 0; i < grid_.excludes.size(); ++i) {
      const Exclude& rule = grid_.excludes[i];
      const bool hit =
          rule.when ? rule.when->holds([&](std::string_view name) { return draft.lookup(name); })
                    : std::ranges::all_of(rule.partial, [&](const std::vector<Setting>& any_of) {
                        return std::ranges::any_of(
                            any_of, [&](const Setting& setting) { return draft.has(setting); });
                      });
      if (!hit) continue;
      excludes_matched_[i] = true;
      const std::string detail = !rule.reason.empty() ? rule.reason
                                 : rule.when          ? rule.when->text()
                                                      : "excluded at " + rule.where;
      result_.dropped.push_back(draft.dropped(DropReason::constraint, detail));
      return true;
    }
    return false;
  }

  void place(const PointBuilder& draft) {
    if (grid_.only &&
        !grid_.only->holds([&](std::string_view name) { return draft.lookup(name); })) {
      result_.dropped.push_back(draft.dropped(DropReason::constraint, "not " + grid_.only->text()));
      return;
    }
    auto resolved = draft.resolve();
    if (auto* drop = std::get_if<Dropped>(&resolved)) {
      result_.dropped.push_back(std::move(*drop));
      return;
    }
    auto& planned = std::get<Planned>(resolved);
    const auto [known, is_new] = by_id_.try_emplace(planned.id, result_.points.size());
    if (is_new) {
      result_.points.push_back(std::move(planned));
      return;
    }
    const Planned& first = result_.points[known->second];
    if (first.point != planned.point) {
      throw Error(ExitCode::conflict, planned.id,
                  fmt::format("two different points have this id: {} and {}",
                              canonical_json(first.point), canonical_json(planned.point)),
                  "change one of them");
    }
    result_.dropped.push_back(
        draft.dropped(DropReason::duplicate, fmt::format("same as {}", first.id)));
  }

  void note_unmatched() {
    const auto note = [&](const std::string& where, std::string_view what) {
      result_.notes.push_back(fmt::format("{}: this {} matched no point", where, what));
    };
    for (std::size_t i = 0; i < grid_.overrides.size(); ++i) {
      if (!overrides_matched_[i]) note(grid_.overrides[i].where, "override");
    }
    for (std::size_t i = 0; i < grid_.excludes.size(); ++i) {
      if (!excludes_matched_[i]) note(grid_.excludes[i].where, "exclude");
    }
  }

  const Grid& grid_;
  const Inventory& inventory_;
  std::set<std::string> forced_;
  std::vector<bool> overrides_matched_;
  std::vector<bool> excludes_matched_;
  std::unordered_map<std::string, std::size_t> by_id_;
  Expansion result_;
};

}  // namespace

Expansion expand(const Grid& grid, const Inventory& inventory) {
  require_known_gpus(grid, inventory);
  return Expander(grid, inventory).run();
}

}  // namespace tessera::sweep
