// SPDX-License-Identifier: Apache-2.0
#include "lib/point/identity.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <random>

#include "lib/base/tree.h"

using namespace tessera;
using namespace tessera::sweep;

namespace {

Point example() {
  Point point;
  point.model = {.d_model = 4096,
                 .n_layers = 32,
                 .n_heads = 32,
                 .n_kv_heads = 32,
                 .head_dim = 128,
                 .ffn = 16384,
                 .vocab = 50368,
                 .biases = {}};
  point.lr = 1.2e-4;
  point.seq_len = 2048;
  point.global_batch = 48;
  point.microbatch_size = 6;
  point.gpus = 8;
  point.gpu = "h100_80gb";
  point.cluster = "hgx";
  return point;
}

// Differs from `example` in every member.
Point unusual() {
  Point point = example();
  point.model.n_kv_heads = 8;
  point.model.head_dim = 64;
  point.model.norm = model::Norm::rmsnorm;
  point.model.positions = model::Positions::rope;
  point.model.activation = model::Activation::swiglu;
  point.model.biases = {.qkv = false, .out = false, .mlp = false, .norm = false};
  point.model.tied = false;
  point.model.norm_eps = 1e-6;
  point.model.rope_theta = 5e5;
  point.lr = 3.0e-4;
  point.microbatch_size = kAutoMicrobatch;
  point.precision = Precision::amp_fp8;
  point.mixed_precision = MixedPrecision::pure;
  point.sharding_strategy = Sharding::hybrid_shard;
  point.hybrid_group = 4;
  point.activation_checkpointing = Checkpointing::selective;
  point.activation_cpu_offload = true;
  point.nodes = 2;
  point.threads = 12;
  point.steps = 50;
  point.warmup = 5;
  point.exact_steps = true;
  point.deterministic = true;
  point.fused_gelu = true;
  point.seed = 1;
  point.env = {{"NCCL_PROTO", "LL128"}, {"QUOTE", "a\"b\\c\n"}};
  point.identity = {{"env.NCCL_IB_HCA", "mlx5"}};
  return point;
}

Point one_device() {
  Point point = example();
  point.gpus = 1;
  return point;
}

}  // namespace

TEST_CASE("normal form: one device shards nothing") {
  Point point = one_device();
  CHECK(normalized(point).sharding_strategy == Sharding::no_shard);
  point.sharding_strategy = Sharding::hybrid_shard;
  point.hybrid_group = 1;
  CHECK(normalized(point).sharding_strategy == Sharding::no_shard);
  CHECK(normalized(example()).sharding_strategy == Sharding::full_shard);
}

TEST_CASE("normal form: a microbatch is at most the device batch") {
  Point point = example();
  point.microbatch_size = 7;
  CHECK(normalized(point).microbatch_size == 6);
  point.microbatch_size = 5;
  CHECK(normalized(point).microbatch_size == 5);
  point.microbatch_size = kAutoMicrobatch;
  CHECK(normalized(point).microbatch_size == kAutoMicrobatch);
}

TEST_CASE("normal form: a hybrid group of all devices is full sharding") {
  Point point = example();
  point.sharding_strategy = Sharding::hybrid_shard;
  point.hybrid_group = 8;
  CHECK(normalized(point).sharding_strategy == Sharding::full_shard);
  CHECK(normalized(point).hybrid_group == 0);
  point.hybrid_group = 4;
  CHECK(normalized(point).sharding_strategy == Sharding::hybrid_shard);
  CHECK(normalized(point).hybrid_group == 4);
}

TEST_CASE("normal form: only hybrid sharding has a hybrid group") {
  Point point = example();
  point.hybrid_group = 4;
  point.sharding_strategy = Sharding::no_shard;
  CHECK(normalized(point).hybrid_group == 0);
  point.sharding_strategy = Sharding::full_shard;
  CHECK(normalized(point).hybrid_group == 0);
}

TEST_CASE("normal form: fp32 has nothing to mix") {
  Point point = example();
  point.precision = Precision::fp32;
  point.mixed_precision = MixedPrecision::full;
  CHECK(normalized(point).mixed_precision == MixedPrecision::default_);
}

TEST_CASE("normal form: one device reduces nothing, so PURE is DEFAULT") {
  Point point = one_device();
  point.mixed_precision = MixedPrecision::pure;
  CHECK(normalized(point).mixed_precision == MixedPrecision::default_);
  point.gpus = 2;
  CHECK(normalized(point).mixed_precision == MixedPrecision::pure);
}

TEST_CASE("normal form: threads count on a CPU only") {
  Point point = example();
  point.threads = 4;
  CHECK(normalized(point).threads == 0);
  point.gpu = "cpu";
  CHECK(normalized(point).threads == 4);
}

TEST_CASE("normal form is final: normalising twice changes nothing") {
  for (const Point& point : {example(), unusual(), one_device()})
    CHECK(normalized(normalized(point)) == normalized(point));
}

TEST_CASE("both JSON forms read back as the point") {
  for (const Point& point : {example(), unusual(), one_device(), normalized(unusual())}) {
    CHECK(parse_point(parse_json(point_json(point), "full")) == point);
    CHECK(parse_point(parse_json(canonical_json(point), "hashed")) == point);
    CHECK(point_json(point).size() <= 2500);
  }
  CHECK(
      canonical_json(example()) ==
      R"({"cluster":"hgx","global_batch":48,"gpu":"h100_80gb","gpus":8,"microbatch_size":6,)"
      R"("model":{"d_model":4096,"ffn":16384,"lr":0.00012,"n_heads":32,"n_layers":32,"vocab":50368},)"
      R"("precision":"amp_bf16","seq_len":2048})");
}

TEST_CASE("normal form: on a CPU steps are exact and bits repeat anyway") {
  Point point = one_device();
  point.exact_steps = true;
  point.deterministic = true;
  CHECK(normalized(point).exact_steps);
  CHECK(normalized(point).deterministic);
  point.gpu = "cpu";
  point.threads = 2;
  CHECK_FALSE(normalized(point).exact_steps);
  CHECK_FALSE(normalized(point).deterministic);
  CHECK(normalized(point).threads == 2);
}

TEST_CASE("normal form: products do a gelu_tanh of whole packs and no other activation") {
  Point point = example();
  point.fused_gelu = true;
  CHECK_FALSE(normalized(point).fused_gelu);
  point.model.activation = model::Activation::swiglu;
  CHECK_FALSE(normalized(point).fused_gelu);
  point.model.activation = model::Activation::gelu_tanh;
  CHECK(normalized(point).fused_gelu);
  point.gpu = "cpu";
  point.threads = 2;
  CHECK(normalized(point).fused_gelu);
  CHECK(canonical_json(point).find(R"("fused_gelu":true,"global_batch")") != std::string::npos);
  point.model.ffn = 16388;
  CHECK_FALSE(normalized(point).fused_gelu);
  // Left out of the full form too where it says nothing.
  CHECK(point_json(example()).find("fused_gelu") == std::string::npos);
}

TEST_CASE("every member of a point changes its id") {
  const std::string id = point_id(example());
  const Point other = unusual();
  const auto differs = [&](auto change) {
    Point point = example();
    change(point);
    CHECK(point_id(point) != id);
    CHECK(point != example());
  };
  differs([&](Point& p) { p.model.norm = other.model.norm; });
  differs([&](Point& p) { p.model.n_kv_heads = 8; });
  differs([&](Point& p) { p.model.tied = false; });
  differs([&](Point& p) { p.model.norm_eps = 1e-6; });
  differs([&](Point& p) { p.lr = other.lr; });
  differs([&](Point& p) { p.seq_len = 1; });
  differs([&](Point& p) { p.global_batch = 8; });
  differs([&](Point& p) { p.microbatch_size = kAutoMicrobatch; });
  differs([&](Point& p) { p.precision = other.precision; });
  differs([&](Point& p) { p.mixed_precision = other.mixed_precision; });
  differs([&](Point& p) { p.sharding_strategy = other.sharding_strategy; });
  differs([&](Point& p) { p.hybrid_group = 4; });
  differs([&](Point& p) { p.activation_checkpointing = other.activation_checkpointing; });
  differs([&](Point& p) { p.activation_cpu_offload = true; });
  differs([&](Point& p) { p.gpus = 16; });
  differs([&](Point& p) { p.nodes = 2; });
  differs([&](Point& p) { p.gpu = "h200"; });
  differs([&](Point& p) { p.cluster = "other"; });
  differs([&](Point& p) { p.threads = 2; });
  differs([&](Point& p) { p.steps = 31; });
  differs([&](Point& p) { p.warmup = 11; });
  differs([&](Point& p) { p.exact_steps = true; });
  differs([&](Point& p) { p.deterministic = true; });
  differs([&](Point& p) { p.fused_gelu = true; });
  differs([&](Point& p) { p.data = "other"; });
  differs([&](Point& p) { p.seed = 18; });
  differs([&](Point& p) { p.env["A"] = "1"; });
  differs([&](Point& p) { p.identity["A"] = "1"; });
}

TEST_CASE(
    "rope_theta is in the id of a model with rope, and 10000 is what a point without it has") {
  Point point = example();
  point.model.positions = model::Positions::rope;
  const std::string id = point_id(point);
  CHECK(canonical_json(point).find("rope_theta") == std::string::npos);
  CHECK(point_json(point).find("rope_theta") == std::string::npos);
  CHECK(point_json(example()).find("norm_eps") == std::string::npos);
  point.model.rope_theta = 5e5;
  CHECK(point_id(point) != id);
  CHECK(canonical_json(point).find(R"("rope_theta":5e+05,)") != std::string::npos);
}

// Ids that exist in people's results. A line may be added, never changed. Those of `before_rule`
// were made before a rule of the normal form: their ids hold, new points do not get them.
TEST_CASE("golden ids never change") {
  std::ifstream in("tests/data/points.jsonl");
  REQUIRE(in.good());
  std::string line;
  std::size_t lines = 0;
  while (std::getline(in, line)) {
    CAPTURE(line);
    const Value value = parse_json(line, "points.jsonl");
    const Point point = parse_point(*value.find("point"));
    CHECK((normalized(point) == point) == (value.find("before_rule") == nullptr));
    CHECK(point_id(point) == value.find("id")->text);
    ++lines;
  }
  CHECK(lines >= 12);
}

TEST_CASE("legal projects") {
  for (const char* project : {"a", "mpt", "mpt-h100", "a1", "abcdefghijklmnop"})
    CHECK(project_fault(project).empty());
  for (const char* project : {"", "1a", "-a", "a-", "a--b", "A", "a_b", "abcdefghijklmnopq", "a b",
                              "a/b", "../a", "\xc3\xa9"}) {
    CAPTURE(project);
    CHECK_FALSE(project_fault(project).empty());
  }
}

TEST_CASE("names are readable, cut in the slug, never in the id, and at most 46 characters") {
  CHECK(slug("7b", example(), "mpt-h100") == "7b-s2048-8g");
  CHECK(run_name("mpt", "7b-s2048-8g", "1f0c9a3b77de", 1) == "mpt--7b-s2048-8g-1f0c9a3b77de");
  CHECK(run_name("mpt", "7b-s2048-8g", "1f0c9a3b77de", 2) == "mpt--7b-s2048-8g-1f0c9a3b77de-r2");
  CHECK(job_name("mpt--x-1f0c9a3b77de-r2", 3) == "mpt--x-1f0c9a3b77de-r2-a3");
  CHECK(slug("Meta/Llama  3.1--8B!", example(), "a").find("--") == std::string::npos);

  std::mt19937 random(7);
  const std::string alphabet = "abzAZ09-_./ \xc3\xa9";
  for (int i = 0; i < 2000; ++i) {
    std::string label;
    for (std::size_t n = random() % 40; n > 0; --n) label += alphabet[random() % alphabet.size()];
    std::string project = "p";
    while (project.size() < 1 + random() % 16) project += "abc123"[random() % 6];
    Point point = example();
    point.seq_len = static_cast<std::int64_t>(1) << (random() % 30);
    const std::string text = slug(label, point, project);
    CAPTURE(label);
    CHECK_FALSE(text.empty());
    CHECK_FALSE(text.starts_with('-'));
    CHECK_FALSE(text.ends_with('-'));
    const std::string job = job_name(run_name(project, text, "1f0c9a3b77de", 99), 99);
    CHECK(job.size() <= 46);
    CHECK(job.find("-1f0c9a3b77de-r99-a99") != std::string::npos);
    CHECK(job.find("--", project.size() + 2) == std::string::npos);
    CHECK(job.starts_with(project + "--"));
  }
}
