// SPDX-License-Identifier: Apache-2.0
// The ranks that have not come, in words.
#pragma once

#include <string>
#include <vector>

namespace tessera::trainer {

// Returns "rank 3 of node 1 has not come" or "ranks 2-3 of node 1, 4-7 of node 2 have not come";
// empty if all have come. node_of[rank]: the node that it came from, -1: it has not come. The node
// of a missing rank is named if those that came fit one of the two usual orders (node by node, or
// round robin).
std::string missing_ranks(const std::vector<int>& node_of, int nodes);

}  // namespace tessera::trainer
