// SPDX-License-Identifier: Apache-2.0
#include "lib/ledger/plan_history.h"

#include <doctest/doctest.h>

#include "lib/point/identity.h"
#include "lib/point/point_values.h"

using namespace tessera;
using namespace tessera::ledger;

namespace {

PlannedPoint planned() {
  sweep::Point point;
  point.model.d_model = 64;
  point.seq_len = 64;
  point.global_batch = 8;
  point.microbatch_size = 2;
  point.threads = 4;
  point = sweep::normalized(point);
  return {.id = "0123456789ab", .run = "tput--a-s64-1g-0123456789ab", .label = "a", .point = point};
}

DroppedPoint dropped() {
  return {.label = "a",
          .reason = "constraint",
          .detail = "no a at 64",
          .values = {{"batch", "accum 4"},
                     {"gpu", "cpu"},
                     {"gpus", "1"},
                     {"microbatch_size", "2"},
                     {"model", "a"},
                     {"seq_len", "64"}}};
}

Contents plans(const std::vector<std::pair<std::string, bool>>& utc_and_selected) {
  Contents contents;
  for (const auto& [utc, selected] : utc_and_selected) {
    Entry& entry = contents.entries.emplace_back();
    entry.utc = utc;
    if (selected) {
      entry.points = {planned()};
    } else {
      entry.dropped = {dropped()};
    }
  }
  return contents;
}

}  // namespace

TEST_CASE("the values of a drop make the point that it would have been") {
  auto drop = dropped();
  drop.values["env.FOO"] = "x";
  drop.values["env.BAR"] = "null";
  drop.values["activation_checkpointing"] = "full";
  const auto point = point_of(drop);
  REQUIRE(point);
  CHECK(point->global_batch == 8);
  CHECK(point->sharding_strategy == Sharding::no_shard);
  CHECK(point->activation_checkpointing == Checkpointing::full);
  CHECK(point->env == std::map<std::string, std::string>{{"FOO", "x"}});
  CHECK(point->seed == 17);
  for (const auto& [batch, expected] :
       {std::pair{"samples 6", 6}, {"per_gpu 3", 3}, {"tokens 128", 2}, {"tokens 100", 0}}) {
    drop.values["batch"] = batch;
    CHECK(point_of(drop)->global_batch == expected);
  }
  drop.values.clear();
  CHECK_FALSE(point_of(drop));
}

TEST_CASE("the last plan that named a point says whether it is selected, whoever wrote it") {
  const PlanHistory excluded(
      plans({{"2026-01-01T00:00:00Z", true}, {"2026-01-02T00:00:00Z", false}}));
  CHECK(excluded.dropped_last(planned()));
  CHECK_FALSE(excluded.selected_last(dropped()));
  CHECK(excluded.selected(dropped()) == std::vector<std::string>{"0123456789ab"});
  const PlanHistory selected(
      plans({{"2026-01-02T00:00:00Z", true}, {"2026-01-01T00:00:00Z", false}}));
  CHECK_FALSE(selected.dropped_last(planned()));
  CHECK(selected.selected_last(dropped()));
  // Excluded and included again by one plan.
  Contents both = plans({{"2026-01-01T00:00:00Z", true}});
  both.entries[0].dropped = {dropped()};
  CHECK_FALSE(PlanHistory(both).dropped_last(planned()));
  // A duplicate's point was selected.
  Contents twice = plans({{"2026-01-01T00:00:00Z", true}, {"2026-01-02T00:00:00Z", false}});
  twice.entries[1].dropped[0].reason = "duplicate";
  CHECK_FALSE(PlanHistory(twice).dropped_last(planned()));
}

TEST_CASE("a drop tells points apart by whether their products do the GELU") {
  auto drop = dropped();
  drop.values["fused_gelu"] = "true";
  REQUIRE(point_of(drop));
  CHECK(point_of(drop)->fused_gelu);
  Contents contents = plans({{"2026-01-01T00:00:00Z", true}, {"2026-01-02T00:00:00Z", false}});
  contents.entries[1].dropped = {drop};
  CHECK_FALSE(PlanHistory(contents).dropped_last(planned()));
  PlannedPoint fused = planned();
  fused.point->model.activation = model::Activation::gelu_tanh;
  fused.point->model.ffn = 256;
  fused.point->fused_gelu = true;
  CHECK(sweep::normalized(*fused.point) == *fused.point);
  contents.entries[0].points = {fused};
  CHECK(PlanHistory(contents).dropped_last(fused));
  contents.entries[1].dropped = {dropped()};
  CHECK_FALSE(PlanHistory(contents).dropped_last(fused));
}

TEST_CASE("another point's drop says nothing of this one") {
  for (const auto& [key, value] : {std::pair{"seq_len", "128"},
                                   {"threads", "2"},
                                   {"env.FOO", "x"},
                                   {"batch", "samples 4"},
                                   {"precision", "fp32"},
                                   {"seed", "18"}}) {
    Contents contents = plans({{"2026-01-01T00:00:00Z", true}, {"2026-01-02T00:00:00Z", false}});
    contents.entries[1].dropped[0].values[key] = value;
    CAPTURE(key);
    CHECK_FALSE(PlanHistory(contents).dropped_last(planned()));
  }
}

TEST_CASE("a drop tells points apart by the blocks that are computed again") {
  auto drop = dropped();
  drop.values["activation_checkpointing"] = "full";
  drop.values["checkpointing_blocks"] = "first-2";
  PlannedPoint some = planned();
  some.point->activation_checkpointing = Checkpointing::full;
  some.point->checkpointing_blocks = "first-2";
  some.point->model.n_layers = 4;
  CHECK(sweep::normalized(*some.point) == *some.point);
  Contents contents = plans({{"2026-01-01T00:00:00Z", true}, {"2026-01-02T00:00:00Z", false}});
  contents.entries[0].points = {some};
  contents.entries[1].dropped = {drop};
  CHECK(PlanHistory(contents).dropped_last(some));
  // Those of no checkpointing are all.
  drop.values.erase("activation_checkpointing");
  CHECK(point_of(drop)->checkpointing_blocks == "all");
}

TEST_CASE("a point that was dropped for want of memory says its global batch itself") {
  PlannedPoint large = planned();
  DroppedPoint drop = dropped();
  drop.reason = "memory";
  drop.values.clear();
  for (const auto& [key, value] : sweep::values_of(*large.point)) drop.values[key] = value;
  CHECK(point_of(drop)->global_batch == large.point->global_batch);
  Contents contents = plans({{"2026-01-01T00:00:00Z", true}, {"2026-01-02T00:00:00Z", false}});
  contents.entries[1].dropped = {drop};
  CHECK(PlanHistory(contents).dropped_last(large));
}
