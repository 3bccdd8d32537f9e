// SPDX-License-Identifier: Apache-2.0
#include "lib/sweep/expand.h"

#include <doctest/doctest.h>

#include "tests/lib/sweep/grids.h"

using namespace tessera;
using namespace tessera::sweep;
using test::expanded;

namespace {

std::string fault_of_expansion(const std::string& yaml) {
  try {
    expanded(yaml);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

const std::string kOnHgx = "defaults: {cluster: hgx, seq_len: 128}\n";

std::string drop(const Expansion& expansion, std::size_t index = 0) {
  REQUIRE(expansion.dropped.size() > index);
  const Dropped& dropped = expansion.dropped[index];
  return std::string(to_text(dropped.reason)) + ": " + dropped.detail;
}

}  // namespace

TEST_CASE("the matrix is a product in file order, the first axis outermost, batch innermost") {
  const auto expansion =
      expanded("matrix: {model: [small, large], seq_len: [128, 256]}\nbatch: {samples: [8, 16]}\n");
  REQUIRE(expansion.points.size() == 8);
  CHECK(expansion.dropped.empty());
  CHECK(expansion.points[0].label == "small");
  CHECK(expansion.points[1].point.global_batch == 16);
  CHECK(expansion.points[2].point.seq_len == 256);
  CHECK(expansion.points[4].label == "large");
}

TEST_CASE("zip groups go together, each is one more axis") {
  const auto expansion =
      expanded(kOnHgx +
               "matrix: {model: small}\n"
               "zip:\n  - {microbatch_size: [2, 4], activation_checkpointing: [none, full]}\n"
               "  - {gpus: [8, 16], precision: [bf16, fp16]}\nbatch: {per_gpu: 8}\n");
  REQUIRE(expansion.points.size() == 4);
  const Point& second = expansion.points[1].point;
  CHECK(second.microbatch_size == 2);
  CHECK(second.gpus == 16);
  CHECK(second.nodes == 2);
  CHECK(second.precision == Precision::amp_fp16);
  CHECK(second.global_batch == 128);
  CHECK(expansion.points[3].point.activation_checkpointing == Checkpointing::full);
}

TEST_CASE("a batch is samples, per GPU, tokens or accumulation") {
  const auto batch = [](const std::string& rule) {
    const auto expansion = expanded(
        kOnHgx + "matrix: {model: small, gpus: 16, microbatch_size: 2}\nbatch: " + rule + "\n");
    return expansion.points.empty() ? drop(expansion)
                                    : std::to_string(expansion.points[0].point.global_batch);
  };
  CHECK(batch("{samples: 32}") == "32");
  CHECK(batch("{per_gpu: 3}") == "48");
  CHECK(batch("{tokens: 4096}") == "32");
  CHECK(batch("{accum: 5}") == "160");
  CHECK(batch("{samples: 30}") == "batch: a global batch of 30 is not divisible by 16 GPUs");
  CHECK(batch("{tokens: 1000}") == "batch: 1000 tokens are no whole number of sequences of 128");
  CHECK(batch("{per_gpu: 2^40}") == "batch: the global batch is beyond 2^40 sequences");
  const auto automatic = expanded(kOnHgx + "matrix: {model: small}\nbatch: {accum: 2}\n");
  CHECK(drop(automatic) == "batch: accum 2 needs a microbatch_size that is not auto");
}

TEST_CASE(
    "defaults yield to the matrix, later overrides win, accum follows an overridden "
    "microbatch") {
  const auto expansion = expanded(
      "defaults: {cluster: hgx, seq_len: 128, gpus: 16, microbatch_size: 1}\n"
      "matrix: {model: [small, large], gpus: [8]}\nbatch: {accum: 2}\n"
      "overrides:\n"
      "  - {when: \"model == 'large'\", set: {microbatch_size: 2, activation_checkpointing: "
      "full}}\n"
      "  - {when: \"microbatch_size == 2\", set: {microbatch_size: 4}}\n");
  REQUIRE(expansion.points.size() == 2);
  CHECK(expansion.points[0].point.gpus == 8);
  CHECK(expansion.points[0].point.global_batch == 16);
  CHECK(expansion.points[1].point.microbatch_size == 4);
  CHECK(expansion.points[1].point.global_batch == 64);
  CHECK(expansion.points[1].point.activation_checkpointing == Checkpointing::full);
}

TEST_CASE("exclude takes partial points and expressions with their reason") {
  const auto expansion =
      expanded(kOnHgx +
               "matrix: {model: [small, large], gpus: [8, 16, 32]}\nbatch: {per_gpu: 1}\n"
               "exclude:\n  - {model: small, gpus: [16, 32]}\n"
               "  - {when: \"model == 'large' and nodes > 2\", reason: too slow}\n"
               "  - {global_batch: 16, model: large}\n");
  CHECK(expansion.points.size() == 2);
  REQUIRE(expansion.dropped.size() == 4);
  CHECK(drop(expansion, 0) == "constraint: excluded at s.yaml:6:5");
  CHECK(drop(expansion, 3) == "constraint: too slow");
  CHECK(expansion.dropped[3].label == "large");
  CHECK(expansion.notes.empty());
}

TEST_CASE("include takes defaults, not overrides or excludes; without a matrix it is all") {
  const auto expansion =
      expanded(kOnHgx +
               "matrix: {model: small}\nbatch: {samples: 8}\n"
               "overrides: [{when: \"true\", set: {steps: 99}}]\nexclude: [{model: large}]\n"
               "include:\n  - {model: large, gpus: [8, 16], batch: {per_gpu: 2}}\n"
               "  - {model: small, zip: {seq_len: [256, 512], microbatch_size: [2, 1]}, batch: "
               "{accum: 1}}\n");
  REQUIRE(expansion.points.size() == 5);
  CHECK(expansion.points[0].point.steps == 99);
  CHECK(expansion.points[1].point.steps == 30);
  CHECK(expansion.points[2].point.global_batch == 32);
  CHECK(expansion.points[3].point.global_batch == 16);
  CHECK(expansion.points[4].point.seq_len == 512);
  REQUIRE(expansion.notes.size() == 1);
  CHECK(expansion.notes[0] == "s.yaml:6:11: this exclude matched no point");
  CHECK(expanded(kOnHgx + "batch: {samples: 8}\n").points.empty());
  CHECK(expanded(kOnHgx + "include: [{model: small, batch: {samples: 8}}]\n").points.size() == 1);
}

TEST_CASE("duplicates are of the id: of what would run, not of what was written") {
  const auto expansion = expanded(
      "matrix: {model: [small, twin], sharding_strategy: [FULL_SHARD, NO_SHARD]}\n"
      "defaults: {seq_len: 128, microbatch_size: 8}\nbatch: {samples: 8}\n"
      "include: [{model: small, microbatch_size: 16, batch: {samples: 8}}]\n");
  REQUIRE(expansion.points.size() == 1);
  CHECK(expansion.dropped.size() == 4);
  CHECK(drop(expansion) == "duplicate: same as " + expansion.points[0].id);
}

TEST_CASE("clusters: what is not there is dropped, what is nowhere is an error") {
  const auto on_mixed = expanded(
      "defaults: {cluster: mixed, seq_len: 128}\n"
      "matrix: {model: small, gpu: [h100_80gb, a100_40gb], gpus: [6, 8, 12, 16]}\n"
      "batch: {per_gpu: 1}\n");
  CHECK(on_mixed.points.size() == 3);  // 6 and 8 h100, 8 a100
  REQUIRE(on_mixed.dropped.size() == 5);
  CHECK(drop(on_mixed, 0) == "cluster: cluster mixed has 8 h100_80gb");
  CHECK(drop(on_mixed, 2) == "cluster: 6 a100_40gb are no whole number of nodes of 4");
  const auto missing =
      expanded(kOnHgx + "matrix: {model: small, gpu: a100_40gb}\nbatch: {per_gpu: 1}\n");
  CHECK(drop(missing) == "cluster: cluster hgx has no a100_40gb");
  CHECK(
      fault_of_expansion(kOnHgx + "matrix: {model: small, gpu: h100_80g}\nbatch: {per_gpu: 1}\n") ==
      "s.yaml:3:29: unknown GPU 'h100_80g'; did you mean h100_80gb?");
  CHECK(
      fault_of_expansion("defaults: {cluster: mixed, seq_len: 128}\nmatrix: {model: small}\nbatch: "
                         "{per_gpu: 1}\n")
          .find("cluster 'mixed' has 2 kinds of GPU") != std::string::npos);
}

TEST_CASE("a precision that the device has no units for is a capability drop") {
  const auto expansion = expanded(
      "defaults: {cluster: mixed, seq_len: 128, gpu: a100_40gb}\n"
      "matrix: {model: small, precision: [fp8, fp16, bf16]}\nbatch: {per_gpu: 1}\n");
  CHECK(expansion.points.size() == 2);  // a peak that is not known does not drop
  CHECK(drop(expansion) == "capability: a100_40gb has no amp_fp8 units");
}

TEST_CASE("gpus default to one node, threads to the CPUs of the machine") {
  const auto hgx = expanded(kOnHgx + "matrix: {model: small}\nbatch: {samples: 8}\n");
  CHECK(hgx.points.at(0).point.gpus == 8);
  CHECK(hgx.points.at(0).point.threads == 0);
  CHECK(hgx.points.at(0).point.identity.at("env.A") == "1");
  const auto local = expanded(
      "matrix: {model: small, seq_len: 128, gpus: [1, 2]}\nbatch: {samples: 8}\n"
      "include: [{model: small, seq_len: 128, threads: 3, batch: {samples: 8}}]\n");
  CHECK(local.points.at(0).point.threads == 8);
  CHECK(local.points.at(1).point.threads == 4);
  CHECK(local.points.at(1).point.nodes == 1);
  CHECK(local.points.at(2).point.threads == 3);
  CHECK(local.points.at(2).point.gpus == 1);
}

TEST_CASE("ranks of a CPU share this machine, but have nodes on a cluster") {
  const auto on = [](const std::string& cluster, int ranks) {
    return expanded("defaults: {cluster: " + cluster +
                    ", gpu: cpu, seq_len: 128, precision: fp32, threads: 1}\n"
                    "matrix: {model: small, gpus: " +
                    std::to_string(ranks) + "}\nbatch: {per_gpu: 1}\n");
  };
  CHECK(on("local", 4).points.at(0).point.nodes == 1);
  CHECK(on("farm", 1).points.at(0).point.nodes == 1);
  CHECK(on("farm", 2).points.at(0).point.nodes == 1);
  CHECK(on("farm", 4).points.at(0).point.nodes == 2);
  CHECK(drop(on("farm", 3), 0) == "cluster: 3 cpu are no whole number of nodes of 2");
  CHECK(drop(on("farm", 10), 0) == "cluster: cluster farm has 8 cpu");
}

TEST_CASE("environment axes, null is not set") {
  const auto expansion = expanded(
      "matrix: {model: small, seq_len: 128, env.NCCL_PROTO: [null, LL128]}\n"
      "batch: {samples: 8}\n");
  REQUIRE(expansion.points.size() == 2);
  CHECK(expansion.points[0].point.env.empty());
  CHECK(expansion.points[1].point.env.at("NCCL_PROTO") == "LL128");
}

TEST_CASE("hybrid groups default to a node") {
  const auto expansion =
      expanded(kOnHgx +
               "matrix: {model: small, sharding_strategy: HYBRID_SHARD, gpus: [8, 32], "
               "hybrid_group: [0, 16, 6]}\nbatch: {per_gpu: 1}\n");
  REQUIRE(expansion.points.size() == 3);
  CHECK(expansion.points[0].point.sharding_strategy == Sharding::full_shard);
  CHECK(expansion.points[1].point.hybrid_group == 8);
  CHECK(expansion.points[2].point.hybrid_group == 16);
  CHECK(drop(expansion, 1) == "capability: hybrid groups of 6 do not divide 8 GPUs");
}

TEST_CASE("forced values win over the file, `only` drops the rest") {
  auto grid = test::grid_of(kOnHgx +
                            "matrix: {model: [small, large]}\nbatch: {samples: 8}\n"
                            "overrides: [{when: \"true\", set: {steps: 99, warmup: 1}}]\n");
  grid.forced.push_back({"steps", std::int64_t{50}, "--steps"});
  grid.only = Expression::parse("model == 'large'", "--where");
  const auto expansion = expand(grid, test::small_inventory());
  REQUIRE(expansion.points.size() == 1);
  CHECK(expansion.points[0].point.steps == 50);
  CHECK(expansion.points[0].point.warmup == 1);
  CHECK(drop(expansion) == "constraint: not model == 'large'");
}

TEST_CASE("what is missing or impossible is said at its block") {
  CHECK(fault_of_expansion("matrix: {seq_len: 128}\nbatch: {samples: 8}\n") ==
        "s.yaml:2:9: a point lacks 'model'; give -m or set it in the sweep file");
  CHECK(
      fault_of_expansion("matrix: {model: small}\nbatch: {samples: 8}\n").find("lacks 'seq_len'") !=
      std::string::npos);
  CHECK(fault_of_expansion("matrix: {model: small, seq_len: 8}\n").find("lacks 'batch'") !=
        std::string::npos);
  CHECK(fault_of_expansion(
            "matrix: {model: small, seq_len: 8, steps: 10, warmup: 10}\nbatch: {samples: 8}\n")
            .find("warmup 10 of 10 steps leaves nothing to measure") != std::string::npos);
}
