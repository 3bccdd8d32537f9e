// SPDX-License-Identifier: Apache-2.0
// Properties that must hold for every grid: no point is lost, doubled or merged.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <random>
#include <set>

#include "lib/point/identity.h"
#include "tests/lib/sweep/grids.h"

using namespace tessera;
using namespace tessera::sweep;

namespace {

struct RandomGrid {
  std::string yaml;
  std::size_t product = 0;
};

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  RandomGrid next() {
    RandomGrid grid;
    grid.yaml = fmt::format("defaults: {{cluster: hgx, gpu: {}, seq_len: 128, model: small}}\n",
                            pick({"h100_80gb", "a100_40gb"}));
    std::size_t product = 1;
    std::string matrix = "matrix: {";
    const auto axis = [&](const std::string& name, const std::vector<std::string>& pool) {
      if (random_() % 3 == 0) return;
      std::vector<std::string> values;
      for (std::size_t n = 1 + random_() % 3; n > 0; --n) values.push_back(pick(pool));
      product *= values.size();
      matrix += fmt::format("{}: [{}], ", name, fmt::join(values, ", "));
    };
    axis("model", {"small", "twin", "large"});
    axis("seq_len", {"128", "256", "2^9"});
    axis("gpus", {"1", "2", "6", "8", "16", "64"});
    axis("precision", {"fp32", "bf16", "fp8", "amp_fp8"});
    axis("mixed_precision", {"DEFAULT", "PURE", "FULL"});
    axis("sharding_strategy", {"FULL_SHARD", "NO_SHARD", "HYBRID_SHARD"});
    axis("microbatch_size", {"1", "2", "64", "auto"});
    axis("env.X", {"null", "a", "b"});
    matrix += fmt::format("cluster: [{}]}}\n", pick({"hgx", "mixed"}));
    grid.yaml += matrix;
    if (random_() % 2 == 0) {
      grid.yaml += "zip: [{steps: [20, 30, 30], seed: [1, 2, 2]}]\n";
      product *= 3;
    }
    grid.yaml += pick({"batch: {samples: [8, 12]}\n", "batch: {per_gpu: [2, 2]}\n",
                       "batch: {tokens: [4096, 5000]}\n", "batch: {accum: [1, 4]}\n"});
    product *= 2;
    grid.yaml += pick({"", "overrides: [{when: \"gpus == 8\", set: {microbatch_size: 4}}]\n"});
    grid.yaml +=
        pick({"", "exclude: [{model: small, gpus: [1, 8]}, {when: \"device_batch > 4\"}]\n"});
    grid.product = product;
    if (random_() % 2 == 0) {
      grid.yaml += "include: [{gpus: [8, 8, 16], batch: {per_gpu: [1, 2]}}]\n";
      grid.product += 6;
    }
    return grid;
  }

 private:
  std::string pick(const std::vector<std::string>& pool) { return pool[random_() % pool.size()]; }
  std::mt19937 random_;
};

}  // namespace

TEST_CASE("points + dropped = the product, no id twice, every point in normal form") {
  Generator generator(20261129);
  std::size_t points = 0;
  std::set<DropReason> reasons;
  for (int i = 0; i < 400; ++i) {
    const RandomGrid grid = generator.next();
    CAPTURE(grid.yaml);
    const Expansion expansion = test::expanded(grid.yaml);
    CHECK(expansion.points.size() + expansion.dropped.size() == grid.product);
    std::set<std::string> ids;
    for (const Planned& each : expansion.points) {
      ids.insert(each.id);
      CHECK(each.point == normalized(each.point));
      CHECK(each.id == point_id(each.point));
      CHECK(each.point.global_batch % each.point.gpus == 0);
    }
    CHECK(ids.size() == expansion.points.size());
    for (const Dropped& drop : expansion.dropped) {
      CHECK_FALSE(drop.detail.empty());
      reasons.insert(drop.reason);
    }
    points += expansion.points.size();
  }
  CHECK(points > 1000);
  CHECK(reasons.size() == 5);  // all but memory, which nothing predicts yet
}

TEST_CASE("a large sweep is planned, a larger one than kMostPoints refused") {
  const auto large = test::grid_of(
      "defaults: {model: small, seq_len: 128}\n"
      "matrix: {seed: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], steps: [11, 12, 13, 14, 15, 16, 17, 18, 19, "
      "20], warmup: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], threads: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], "
      "gpus: 1}\nbatch: {samples: [1, 2]}\n");
  CHECK(expand(large, test::small_inventory()).points.size() == 20000);
  const std::string ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]";
  CHECK_THROWS_AS(test::expanded(fmt::format("matrix: {{seed: {0}, threads: {0}, gpus: {0}, "
                                             "seq_len: {0}, env.A: {0}, env.B: {0}, env.C: {0}}}\n"
                                             "defaults: {{model: small}}\nbatch: {{samples: 1}}\n",
                                             ten)),
                  Error);
}
