// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/loop/plan_lines.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "lib/ledger/plan_history.h"
#include "lib/point/identity.h"

namespace tessera::submit {

std::vector<ledger::PlannedPoint> planned_points(const sweep::Expansion& plan,
                                                 const std::string& project, int repeats) {
  std::vector<ledger::PlannedPoint> planned;
  for (const sweep::Planned& point : plan.points) {
    const std::string slug = sweep::slug(point.label, point.point, project);
    planned.push_back({.id = point.id,
                       .run = sweep::run_name(project, slug, point.id, 1),
                       .label = point.label,
                       .repeats = point.repeats > 0 ? point.repeats : repeats,
                       .point = point.point});
  }
  return planned;
}

void append_plan(ledger::Ledger& ledger, const ledger::Contents& contents,
                 const std::vector<ledger::PlannedPoint>& planned,
                 const std::vector<sweep::Dropped>& dropped) {
  std::map<std::string, ledger::PlannedPoint> known;
  std::set<ledger::DroppedPoint> known_drops;
  for (const ledger::Entry& entry : contents.entries) {
    for (const ledger::PlannedPoint& point : entry.points) known[point.run] = point;
    known_drops.insert(entry.dropped.begin(), entry.dropped.end());
  }
  const ledger::PlanHistory words(contents);
  std::set<std::string> selected;
  for (const ledger::PlannedPoint& point : planned) selected.insert(point.id);
  ledger::Entry entry;
  entry.op = ledger::Op::plan;
  const auto flush = [&](std::size_t least) {
    if (entry.points.size() + entry.dropped.size() < least) return;
    ledger.append(entry);
    entry.points.clear();
    entry.dropped.clear();
  };
  // Drops first: what this plan selects as well (an include, a duplicate) is selected.
  for (const sweep::Dropped& point : dropped) {
    const ledger::DroppedPoint drop{.label = point.label,
                                    .reason = std::string(to_text(point.reason)),
                                    .detail = point.detail,
                                    .values = {point.values.begin(), point.values.end()}};
    const auto is_selected_now = [&] {
      return std::ranges::any_of(words.selected(drop),
                                 [&](const std::string& id) { return selected.contains(id); });
    };
    if (known_drops.contains(drop) && (!words.selected_last(drop) || is_selected_now())) continue;
    entry.dropped.push_back(drop);
    flush(ledger::kPointsPerPlan);
  }
  for (const ledger::PlannedPoint& point : planned) {
    const auto found = known.find(point.run);
    if (found != known.end() && found->second == point && !words.dropped_last(point)) continue;
    entry.points.push_back(point);
    flush(ledger::kPointsPerPlan);
  }
  flush(1);
}

}  // namespace tessera::submit
