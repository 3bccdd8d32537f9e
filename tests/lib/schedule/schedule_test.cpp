// SPDX-License-Identifier: Apache-2.0
#include "lib/schedule/schedule.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "lib/base/error.h"
#include "lib/schedule/units.h"

using namespace tessera;
using namespace tessera::memory;

namespace {

Config blocks(std::int64_t count) {
  Config config;
  config.shape.n_layers = count;
  return config;
}

Config ranks(std::int64_t count, Sharding sharding, std::int64_t world = 4) {
  Config config = blocks(count);
  config.world = world;
  config.sharding = sharding;
  config.hybrid_group = sharding == Sharding::hybrid_shard ? 2 : 0;
  return config;
}

// Accesses of an action to places that streams share: slots of weights, of gradients, of kept
// activations, and the host copies of those.
struct Touch {
  std::string place;
  bool writes = false;
};

std::vector<Touch> touches(const Config& config, const Action& action) {
  const bool sharded = shard_ranks(config) > 1;
  const std::int64_t count = config.shape.n_layers;
  const auto is_block = [&](std::int64_t unit) { return unit >= 1 && unit <= count; };
  const auto weights = [&](std::int64_t unit) {
    const bool in_turn = is_block(unit) && config.sharding != Sharding::shard_grad_op;
    return in_turn ? fmt::format("weights of turn {}", slot_of(unit))
                   : fmt::format("weights of unit {}", unit);
  };
  const auto gradient = [&](std::int64_t unit) {
    return sharded && is_block(unit) ? fmt::format("gradient of turn {}", slot_of(unit))
                                     : fmt::format("gradient of unit {}", unit);
  };
  const auto kept = [](std::int64_t unit) { return fmt::format("kept of turn {}", slot_of(unit)); };
  const std::int64_t unit = action.unit;
  std::vector<Touch> all;
  switch (action.kind) {
    case ActionKind::gather:
      all.push_back({fmt::format("shard of unit {}", unit), false});
      all.push_back({weights(unit), true});
      break;
    case ActionKind::forward:
    case ActionKind::recompute:
      if (sharded) all.push_back({weights(unit), false});
      if (config.offload && action.kind == ActionKind::forward)
        all.push_back({kept(std::max<std::int64_t>(unit, 1)), true});
      if (config.offload && action.kind == ActionKind::recompute)
        all.push_back({kept(unit), false});
      break;
    case ActionKind::head:
      if (sharded) all.push_back({weights(0), false});
      all.push_back({gradient(0), true});
      if (!config.shape.tied) {
        if (sharded) all.push_back({weights(count + 1), false});
        all.push_back({gradient(count + 1), true});
      }
      break;
    case ActionKind::offload:
      all.push_back({kept(unit), false});
      all.push_back({fmt::format("host copy of unit {}", unit), true});
      break;
    case ActionKind::fetch:
      all.push_back({fmt::format("host copy of unit {}", unit), false});
      all.push_back({kept(unit), true});
      break;
    case ActionKind::backward:
      if (sharded && unit > 0) all.push_back({weights(unit), false});
      if (config.offload && unit > 0) all.push_back({kept(unit), true});
      all.push_back({gradient(unit), true});
      break;
    case ActionKind::reduce:
      all.push_back({gradient(unit), true});
      all.push_back({fmt::format("sum of unit {}", unit), true});
      break;
    case ActionKind::norm:
      for (std::int64_t each = 0; each < unit_count(config.shape); ++each)
        all.push_back({fmt::format("sum of unit {}", each), false});
      break;
    case ActionKind::update:
      all.push_back({fmt::format("sum of unit {}", unit), false});
      all.push_back({fmt::format("shard of unit {}", unit), true});
      break;
  }
  return all;
}

using Clock = std::array<int, kStreams>;

// Runs `steps` steps by vector clocks: "backward of 3 and gather of 1 on weights of turn 1", the
// first conflict that nothing orders, or "".
std::string conflict(const Config& config, const std::vector<Action>& actions, int steps = 2) {
  struct Past {
    Clock clock;  // of its end
    Stream stream;
    bool writes;
    std::string name;
  };
  std::map<std::string, std::vector<Past>> places;
  std::array<Clock, kStreams> now{};
  std::vector<Clock> ended(actions.size()), ended_before(actions.size());
  for (int step = 0; step < steps; ++step) {
    ended_before = ended;
    for (std::size_t tick = 0; tick < actions.size(); ++tick) {
      const Action& action = actions[tick];
      const auto stream = static_cast<std::size_t>(action.stream);
      Clock& clock = now[stream];
      const auto join = [&](const Clock& other) {
        for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
      };
      for (const int other : action.after) join(ended[static_cast<std::size_t>(other)]);
      if (step > 0) {
        for (const int other : action.after_previous)
          join(ended_before[static_cast<std::size_t>(other)]);
      }
      ++clock[stream];
      const std::string name = fmt::format("{} of {}", to_text(action.kind), action.unit);
      for (const Touch& touch : touches(config, action)) {
        std::vector<Past>& past = places[touch.place];
        for (const Past& each : past) {
          const auto its = static_cast<std::size_t>(each.stream);
          if ((each.writes || touch.writes) && each.clock[its] > clock[its])
            return fmt::format("{} and {} on {}", each.name, name, touch.place);
        }
        past.push_back({clock, action.stream, touch.writes, name});
      }
      ended[tick] = clock;
    }
  }
  return "";
}

std::vector<Config> all_kinds() {
  std::vector<Config> all;
  for (const std::int64_t count : {1, 2, 3, 7}) {
    for (const bool tied : {true, false}) {
      for (const bool offload : {false, true}) {
        for (const Checkpointing checkpointing : {Checkpointing::none, Checkpointing::full}) {
          for (const Sharding sharding : {Sharding::no_shard, Sharding::full_shard,
                                          Sharding::shard_grad_op, Sharding::hybrid_shard}) {
            for (const std::int64_t world : {1, 4}) {
              if (world == 1 && sharding != Sharding::no_shard) continue;
              Config config = ranks(count, sharding, world);
              config.shape.tied = tied;
              config.offload = offload;
              config.checkpointing = checkpointing;
              all.push_back(config);
            }
          }
        }
      }
    }
  }
  return all;
}

}  // namespace

TEST_CASE("a step is printed as what it is") {
  const Config config = blocks(2);
  CHECK(describe(schedule(config, 1), config.shape) ==
        "    0 compute  forward    root       microbatch 0\n"
        "    1 compute  forward    block 0    microbatch 0\n"
        "    2 compute  forward    block 1    microbatch 0\n"
        "    3 compute  head       root       microbatch 0\n"
        "    4 compute  backward   block 1    microbatch 0\n"
        "    5 compute  backward   block 0    microbatch 0\n"
        "    6 compute  backward   root       microbatch 0\n"
        "    7 compute  norm       root       microbatch 0\n"
        "    8 compute  update     root       microbatch 0\n"
        "    9 compute  update     block 0    microbatch 0\n"
        "   10 compute  update     block 1    microbatch 0\n");
  Config sharded = ranks(2, Sharding::full_shard);
  sharded.shape.tied = false;
  CHECK(describe(schedule(sharded, 1), sharded.shape) ==
        "    0 gather   gather     root       microbatch 0  after 16 of the step before\n"
        "    1 gather   gather     block 0    microbatch 0  after 17 of the step before\n"
        "    2 compute  forward    root       microbatch 0  after 0\n"
        "    3 gather   gather     block 1    microbatch 0  after 18 of the step before\n"
        "    4 compute  forward    block 0    microbatch 0  after 1\n"
        "    5 gather   gather     head       microbatch 0  after 19 of the step before\n"
        "    6 compute  forward    block 1    microbatch 0  after 3\n"
        "    7 compute  head       root       microbatch 0  after 5\n"
        "    8 reduce   reduce     head       microbatch 0  after 7\n"
        "    9 compute  backward   block 1    microbatch 0\n"
        "   10 reduce   reduce     block 1    microbatch 0  after 9\n"
        "   11 compute  backward   block 0    microbatch 0\n"
        "   12 reduce   reduce     block 0    microbatch 0  after 11\n"
        "   13 compute  backward   root       microbatch 0\n"
        "   14 reduce   reduce     root       microbatch 0  after 13\n"
        "   15 compute  norm       root       microbatch 0  after 14\n"
        "   16 compute  update     root       microbatch 0\n"
        "   17 compute  update     block 0    microbatch 0\n"
        "   18 compute  update     block 1    microbatch 0\n"
        "   19 compute  update     head       microbatch 0\n");
}

TEST_CASE("full checkpointing computes each block again just before its backward") {
  Config config = blocks(3);
  config.checkpointing = Checkpointing::full;
  const std::vector<Action> actions = schedule(config, 2);
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
  const std::vector<Action> actions = schedule(blocks(2), 3);
  CHECK(actions.size() == 3 * 7 + 1 + 3);
  CHECK(tick_of(actions, ActionKind::forward, 0, 1) ==
        tick_of(actions, ActionKind::backward, 0, 0) + 1);
  CHECK(tick_of(actions, ActionKind::norm, 0, 2) == 21);
  CHECK(actions.back().kind == ActionKind::update);
  CHECK(actions.back().unit == 2);
  CHECK_THROWS_AS(schedule(blocks(2), 40000), Error);
}

TEST_CASE("a head of its own is a unit that is updated last") {
  Config config = blocks(2);
  config.shape.tied = false;
  const std::vector<Action> actions = schedule(config, 1);
  CHECK(actions.back().kind == ActionKind::update);
  CHECK(actions.back().unit == 3);
  CHECK(actions.size() == schedule(blocks(2), 1).size() + 1);
}

TEST_CASE("nothing that streams share is touched in an order that nothing gives") {
  for (const Config& config : all_kinds()) {
    for (const std::int64_t microbatches : {1, 2, 3}) {
      CAPTURE(config.shape.n_layers);
      CAPTURE(to_text(config.sharding));
      CAPTURE(config.offload);
      CHECK(conflict(config, schedule(config, microbatches)) == "");
    }
  }
}

TEST_CASE("every wait is needed: without it something is touched out of order") {
  int waits = 0;
  for (const Config& config : all_kinds()) {
    const std::vector<Action> actions = schedule(config, 2);
    for (std::size_t tick = 0; tick < actions.size(); ++tick) {
      for (std::size_t i = 0; i < actions[tick].after.size() + actions[tick].after_previous.size();
           ++i) {
        std::vector<Action> fewer = actions;
        Action& action = fewer[tick];
        if (i < action.after.size()) {
          action.after.erase(action.after.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
          action.after_previous.erase(action.after_previous.begin() +
                                      static_cast<std::ptrdiff_t>(i - action.after.size()));
        }
        ++waits;
        CAPTURE(describe(actions, config.shape));
        CAPTURE(tick);
        CHECK(conflict(config, fewer) != "");
      }
    }
  }
  CHECK(waits > 1000);
}

TEST_CASE("weights travel once a step where they have a slot of their own, else once a pass") {
  const auto count = [](const std::vector<Action>& actions, ActionKind kind) {
    return std::ranges::count(actions, kind, &Action::kind);
  };
  const std::int64_t n = 7;
  // Root once; of the blocks, the last two are still there when the backward pass begins, and the
  // first two when the next microbatch does.
  CHECK(count(schedule(ranks(n, Sharding::full_shard), 1), ActionKind::gather) == 1 + n + (n - 2));
  CHECK(count(schedule(ranks(n, Sharding::full_shard), 3), ActionKind::gather) ==
        1 + 2 + 3 * 2 * (n - 2));
  CHECK(count(schedule(ranks(n, Sharding::shard_grad_op), 3), ActionKind::gather) == 1 + n);
  CHECK(count(schedule(ranks(n, Sharding::no_shard), 3), ActionKind::gather) == 0);
  // Shards add up gradients of every microbatch; whole gradients are summed once a step.
  CHECK(count(schedule(ranks(n, Sharding::full_shard), 3), ActionKind::reduce) == 3 * (n + 1));
  CHECK(count(schedule(ranks(n, Sharding::no_shard), 3), ActionKind::reduce) == n + 1);
  CHECK(count(schedule(ranks(n, Sharding::no_shard, 1), 3), ActionKind::reduce) == 0);
}

TEST_CASE("offload leaves the last two blocks where they are") {
  Config config = blocks(5);
  config.offload = true;
  const std::vector<Action> actions = schedule(config, 1);
  for (std::int64_t unit = 1; unit <= 5; ++unit) {
    CHECK((tick_of(actions, ActionKind::offload, unit) >= 0) == (unit <= 3));
    CHECK((tick_of(actions, ActionKind::fetch, unit) >= 0) == (unit <= 3));
  }
  // The next block comes back while one computes.
  CHECK(tick_of(actions, ActionKind::fetch, 2) < tick_of(actions, ActionKind::backward, 3));
}
