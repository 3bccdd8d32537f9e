// SPDX-License-Identifier: Apache-2.0
// yamls/sweeps/mpt-published.yaml plans exactly the rows of the published tables.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <set>

#include "lib/base/process.h"
#include "lib/cluster/inventory.h"
#include "lib/sweep/sweep_file.h"
#include "tests/csv.h"

using namespace tessera;
using namespace tessera::sweep;

TEST_CASE("the published sweep is the published rows, each with its settings") {
  std::set<std::string> published;
  for (const auto& row : test::read_csv("yamls/reference/mpt-published.csv")) {
    // Rows that say bf16 are of the time when that was the name of amp_bf16.
    const std::string precision = row.at("precision") == "bf16" ? "amp_bf16" : row.at("precision");
    published.insert(
        fmt::format("{} s{} {}x{} mb{} gb{} {} {} {} {} offload {}", row.at("model"),
                    row.at("seq_len"), row.at("gpus"), row.at("gpu"), row.at("micro_batch_size"),
                    row.at("global_batch_size"), precision, row.at("mp_mode"), row.at("sharding"),
                    row.at("act_ckpt") == "True" ? "full" : "none", row.at("act_offload")));
  }
  REQUIRE(published.size() == 216);

  const Grid grid = read_sweep("yamls/sweeps/mpt-published.yaml");
  const auto loaded = cluster::load_inventory(grid, "");
  const Expansion expansion = expand(grid, loaded.inventory);
  CHECK(expansion.dropped.empty());
  CHECK(expansion.notes.empty());
  CHECK(expansion.points.size() == 216);
  std::set<std::string> planned;
  for (const Planned& each : expansion.points) {
    const Point& point = each.point;
    planned.insert(fmt::format(
        "{} s{} {}x{} mb{} gb{} {} {} {} {} offload {}", each.label, point.seq_len, point.gpus,
        point.gpu, point.microbatch_size, point.global_batch, to_text(point.precision),
        to_text(point.mixed_precision), to_text(point.sharding_strategy),
        to_text(point.activation_checkpointing), point.activation_cpu_offload ? "True" : "False"));
    CHECK(point.nodes == (point.gpus + 7) / 8);
    CHECK(point.cluster == "mpt-published");
  }
  for (const std::string& row : published) {
    CAPTURE(row);
    CHECK(planned.contains(row));
  }
  CHECK(planned == published);
}

TEST_CASE("the quickstart sweep is 16 points of this machine's CPU") {
  const Grid grid = read_sweep("yamls/sweeps/quickstart.yaml");
  const auto loaded = cluster::load_inventory(grid, "");
  const Expansion expansion = expand(grid, loaded.inventory);
  CHECK(expansion.points.size() == 16);
  CHECK(expansion.dropped.empty());
  for (const Planned& each : expansion.points) {
    CHECK(each.point.gpu == "cpu");
    CHECK(each.point.gpus == 1);
    CHECK(each.point.threads == usable_cpus());
  }
}
