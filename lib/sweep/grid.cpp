// SPDX-License-Identifier: Apache-2.0
#include "lib/sweep/grid.h"

namespace tessera::sweep {

namespace {

void collect(const Assignment& assignment, std::string_view key, std::vector<Setting>& found) {
  for (const Setting& setting : assignment) {
    if (setting.key == key) found.push_back(setting);
  }
}

void collect(const Block& block, std::string_view key, std::vector<Setting>& found) {
  for (const Axis& axis : block.axes) {
    for (const Assignment& choice : axis.choices) collect(choice, key, found);
  }
}

}  // namespace

std::vector<Setting> settings_of(const Grid& grid, std::string_view key) {
  std::vector<Setting> found;
  collect(grid.forced, key, found);
  // A forced value leaves the file's own unused: they need not be there to look up.
  if (!found.empty()) return found;
  collect(grid.defaults, key, found);
  if (grid.matrix) collect(*grid.matrix, key, found);
  for (const Override& rule : grid.overrides) collect(rule.set, key, found);
  for (const Block& block : grid.includes) collect(block, key, found);
  return found;
}

}  // namespace tessera::sweep
