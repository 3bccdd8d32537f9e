// SPDX-License-Identifier: Apache-2.0
// The first of all files: what it hands over runs while the others' tests do.
#include "tests/cluster/slurm_board.h"

#include <doctest/doctest.h>

#include "lib/base/clock.h"

using namespace tessera::test;

TEST_CASE("jobs of all kinds are handed over") {
  const double begin_s = tessera::monotonic_seconds();
  Board& board = Board::get();
  const double each_ms =
      1000 * (tessera::monotonic_seconds() - begin_s) / static_cast<double>(board.size());
  MESSAGE("handed over ", board.size(), " jobs, ", each_ms, " ms each");
  CHECK(board.size() > 10);
}
