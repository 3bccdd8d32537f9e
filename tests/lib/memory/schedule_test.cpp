#include "lib/memory/schedule.h"

#include <doctest/doctest.h>

#include "lib/base/error.h"

using namespace tessera;
using namespace tessera::memory;

namespace {

model::Shape blocks(std::int64_t count) {
  model::Shape shape;
  shape.n_layers = count;
  return shape;
}

}  // namespace

TEST_CASE("a step is printed as what it is") {
  CHECK(describe(schedule(blocks(2), 1, recompute_mask(Checkpointing::none, 2))) ==
        "    0 compute  forward   unit   0  microbatch 0\n"
        "    1 compute  forward   unit   1  microbatch 0\n"
        "    2 compute  forward   unit   2  microbatch 0\n"
        "    3 compute  head      unit   0  microbatch 0\n"
        "    4 compute  backward  unit   2  microbatch 0\n"
        "    5 compute  backward  unit   1  microbatch 0\n"
        "    6 compute  backward  unit   0  microbatch 0\n"
        "    7 compute  norm      unit   0  microbatch 0\n"
        "    8 compute  update    unit   0  microbatch 0\n"
        "    9 compute  update    unit   1  microbatch 0\n"
        "   10 compute  update    unit   2  microbatch 0\n");
}

TEST_CASE("full checkpointing computes each block again just before its backward") {
  const std::vector<Action> actions =
      schedule(blocks(3), 2, recompute_mask(Checkpointing::full, 3));
  for (std::int64_t microbatch = 0; microbatch < 2; ++microbatch) {
    for (std::int64_t unit = 1; unit <= 3; ++unit) {
      const int again = tick_of(actions, ActionKind::recompute, unit, microbatch);
      CHECK(again > tick_of(actions, ActionKind::head, 0, microbatch));
      CHECK(tick_of(actions, ActionKind::backward, unit, microbatch) == again + 1);
    }
  }
  CHECK(tick_of(actions, ActionKind::recompute, 0) == -1);
}

TEST_CASE("microbatches follow each other, the update comes once and last") {
  const std::vector<Action> actions =
      schedule(blocks(2), 3, recompute_mask(Checkpointing::none, 2));
  CHECK(actions.size() == 3 * 7 + 1 + 3);
  CHECK(tick_of(actions, ActionKind::forward, 0, 1) ==
        tick_of(actions, ActionKind::backward, 0, 0) + 1);
  CHECK(tick_of(actions, ActionKind::norm, 0, 2) == 21);
  CHECK(actions.back() == Action{.kind = ActionKind::update, .unit = 2, .microbatch = 2});
  CHECK_THROWS_AS(schedule(blocks(2), 40000, recompute_mask(Checkpointing::none, 2)), Error);
}

TEST_CASE("a head of its own is a unit that is updated last") {
  model::Shape shape = blocks(2);
  shape.tied = false;
  const std::vector<Action> actions = schedule(shape, 1, recompute_mask(Checkpointing::none, 2));
  CHECK(actions.back() == Action{.kind = ActionKind::update, .unit = 3});
  CHECK(actions.size() ==
        schedule(blocks(2), 1, recompute_mask(Checkpointing::none, 2)).size() + 1);
}
