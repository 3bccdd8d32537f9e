// Who has not come, in words.
#pragma once

#include <string>
#include <vector>

namespace tessera::trainer {

// node_of[rank]: the node that it came from, -1: it has not come. "rank 3 of node 1 has not come",
// "ranks 2-3 of node 1, 4-7 of node 2 have not come"; empty if all have. The node of a missing rank
// is said where those that came fit one of the two usual orders (node by node, or round and round).
std::string missing_ranks(const std::vector<int>& node_of, int nodes);

}  // namespace tessera::trainer
