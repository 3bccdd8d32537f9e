// SPDX-License-Identifier: Apache-2.0
// Expansion: Grid -> points and dropped points. Pure: what it needs to know of models, clusters and
// GPUs is handed in.
//
// points + dropped = the product. Order (docs/formats.md, "Sweep"): matrix x zip x batch ->
// defaults -> overrides -> exclude -> + include -> normalise -> duplicates.
#pragma once

#include <cstdint>

#include "lib/sweep/expansion.h"
#include "lib/sweep/grid.h"

namespace tessera::sweep {

inline constexpr std::int64_t kMostPoints = 1000000;

// Error(input) where the grid contradicts itself, is larger than kMostPoints or names what the
// inventory lack; Error(conflict) when two different points have one id.
Expansion expand(const Grid& grid, const Inventory& inventory);

}  // namespace tessera::sweep
