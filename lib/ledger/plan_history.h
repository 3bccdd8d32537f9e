// SPDX-License-Identifier: Apache-2.0
// What the plan lines of a ledger say of a point, whichever way they say it: a dropped point has no
// id, but the values that were set, and a plan may drop what another selects.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/ledger/ledger.h"

namespace tessera::ledger {

// The point that a drop's values describe, in normal form; what they do not tell keeps its default
// (sweep/point.h), and the model is empty. global_batch is 0 where the batch rule gives no whole
// number. Nothing if the line holds no values (older ledgers) or one that cannot be read.
std::optional<sweep::Point> point_of(const DroppedPoint& dropped);

// The last word of all plans about each point: selected, or dropped.
class PlanHistory {
 public:
  explicit PlanHistory(const Contents& contents);

  // The last plan that named this point dropped it. Duplicates do not count: the point they repeat
  // was selected.
  bool dropped_last(const PlannedPoint& point) const;
  // The last plan that named this point selected it.
  bool selected_last(const DroppedPoint& dropped) const;
  // Ids of all points with these settings that were ever selected.
  std::vector<std::string> selected(const DroppedPoint& dropped) const;

 private:
  struct Word {
    int selected = -1;  // number of the last entry that did; -1: none
    int dropped = -1;
    std::vector<std::string> ids;
  };
  const Word* find(const DroppedPoint& dropped) const;
  std::map<std::string, Word> words_;
};

}  // namespace tessera::ledger
