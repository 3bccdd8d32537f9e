// SPDX-License-Identifier: Apache-2.0
#include "trainer/launch/roll_call.h"

#include <doctest/doctest.h>

using namespace tessera::trainer;

TEST_CASE("missing ranks are named, with their node where the others show it") {
  CHECK(missing_ranks({0, 0, 0}, 1).empty());
  CHECK(missing_ranks({0, -1}, 1) == "rank 1 has not come");
  CHECK(missing_ranks({0, -1, -1, 0, -1}, 1) == "ranks 1-2, 4 have not come");
  // Two nodes of two, node by node.
  CHECK(missing_ranks({0, 0, 1, -1}, 2) == "rank 3 of node 1 has not come");
  CHECK(missing_ranks({0, -1, -1, -1}, 2) == "ranks 1 of node 0, 2-3 of node 1 have not come");
  // Two nodes of two, round robin.
  CHECK(missing_ranks({0, 1, 0, -1}, 2) == "rank 3 of node 1 has not come");
  CHECK(missing_ranks({0, 1, -1, 1}, 2) == "rank 2 of node 0 has not come");
  // Neither order fits, or nodes have different sizes: no node is guessed.
  CHECK(missing_ranks({0, 1, 1, -1}, 2) == "rank 3 has not come");
  CHECK(missing_ranks({0, 0, -1}, 2) == "rank 2 has not come");
}

TEST_CASE("a long list of missing ranks is cut and counted") {
  std::vector<int> node_of(64, 0);
  for (std::size_t rank = 1; rank < node_of.size(); rank += 2) node_of[rank] = -1;
  CHECK(missing_ranks(node_of, 1) ==
        "ranks 1, 3, 5, 7, 9, 11, 13, 15, ... (32 of 64) have not come");
}
