// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/trainers/capabilities.h"

#include <doctest/doctest.h>

#include "lib/base/error.h"

using namespace tessera;
using namespace tessera::submit;

namespace {

const char* const kAnswer = R"({"trainer": "0.1", "cpu": "EPYC", "blas": "OpenBLAS", "cpus": 4,
  "devices": ["cpu"], "precisions": ["fp32", "amp_bf16"], "mixed_precision": ["DEFAULT"],
  "sharding": ["NO_SHARD"], "activation_checkpointing": ["none", "full"], "norms": ["layernorm"],
  "positions": ["learned"], "activations": ["gelu_erf"], "untied_head": false,
  "activation_cpu_offload": false, "data": ["synthetic"], "max_ranks": 1, "microbatch_auto": false,
  "of_a_newer_trainer": 1})";

sweep::Point runnable() {
  sweep::Point point;
  point.sharding_strategy = Sharding::no_shard;
  return point;
}

std::string text_of(const std::optional<Lack>& lack) {
  return lack ? lack->text() : "";
}

template <class Change>
std::string lacked(Change change) {
  sweep::Point point = runnable();
  change(point);
  return text_of(lacks(parse_capabilities(parse_json(kAnswer, "answer")), point));
}

}  // namespace

TEST_CASE("an answer is read, and what lacks a member is named") {
  const Capabilities can = parse_capabilities(parse_json(kAnswer, "answer"));
  CHECK(can.cpus == 4);
  CHECK(can.precisions == std::vector<std::string>{"fp32", "amp_bf16"});
  CHECK_THROWS_AS(parse_capabilities(parse_json(R"({"cpu": "EPYC"})", "answer")), Error);
  CHECK_FALSE(ask_capabilities("/none/trainer").has_value());
  CHECK_FALSE(ask_capabilities("/bin/true").has_value());
}

TEST_CASE("what the trainer lacks is named with what it has") {
  using sweep::Point;
  CHECK(lacked([](Point&) {}).empty());
  CHECK(lacked([](Point& p) { p.gpu = "h200"; }) == "gpu h200: the trainer has no device for it");
  CHECK(lacked([](Point& p) { p.gpus = 2; }) == "gpus 2: the trainer runs on at most 1");
  CHECK(lacked([](Point& p) { p.precision = Precision::amp_fp8; }) ==
        "precision amp_fp8: the trainer has fp32, amp_bf16");
  CHECK(lacked([](Point& p) { p.mixed_precision = MixedPrecision::full; }) ==
        "mixed_precision FULL: the trainer has DEFAULT");
  CHECK(lacked([](Point& p) { p.sharding_strategy = Sharding::hybrid_shard; }) ==
        "sharding_strategy HYBRID_SHARD: the trainer has NO_SHARD");
  CHECK(lacked([](Point& p) { p.activation_checkpointing = Checkpointing::selective; }) ==
        "activation_checkpointing selective: the trainer has none, full");
  CHECK(lacked([](Point& p) { p.model.norm = model::Norm::rmsnorm; }) ==
        "norm rmsnorm: the trainer has layernorm");
  CHECK(lacked([](Point& p) { p.model.positions = model::Positions::rope; }) ==
        "positions rope: the trainer has learned");
  CHECK(lacked([](Point& p) { p.model.activation = model::Activation::swiglu; }) ==
        "activation swiglu: the trainer has gelu_erf");
  CHECK(lacked([](Point& p) { p.data = "c4"; }) == "data c4: the trainer has synthetic");
  CHECK(lacked([](Point& p) { p.data = "/d/a.tok"; }) ==
        "data /d/a.tok: the trainer has synthetic");
  CHECK(lacked([](Point& p) { p.model.tied = false; }).starts_with("the model's head is its own"));
  CHECK(lacked([](Point& p) { p.activation_cpu_offload = true; }) ==
        "activation_cpu_offload true: the trainer has false");
  CHECK(lacked([](Point& p) { p.microbatch_size = sweep::kAutoMicrobatch; }).empty());
}

namespace {

// kAnswer with more members, of a trainer that was built with CUDA and sees no GPU.
Capabilities without_driver(const std::string& gpu) {
  std::string text = kAnswer;
  text.insert(1, R"("cuda": {"gpus": [], "none": "there is no driver", "max_ranks": 1},)" + gpu);
  return parse_capabilities(parse_json(text, "answer"));
}

const char* const kOnGpus =
    R"("gpu": {"precisions": ["fp32", "tf32", "amp_bf16"], "sharding": ["NO_SHARD"],
               "max_ranks": 1},)";

sweep::Point on_gpu(Precision precision) {
  sweep::Point point = runnable();
  point.gpu = "h200";
  point.precision = precision;
  return point;
}

}  // namespace

TEST_CASE("what no machine would change is told before what this machine lacks") {
  const Capabilities can = without_driver(kOnGpus);
  const std::string no_driver = "gpu h200: the trainer has no device for it: there is no driver";
  CHECK(text_of(lacks(can, on_gpu(Precision::amp_fp16))) ==
        "precision amp_fp16: the trainer has fp32, tf32, amp_bf16");
  CHECK(text_of(lacks_anywhere(can, on_gpu(Precision::amp_fp16))) ==
        "precision amp_fp16: the trainer has fp32, tf32, amp_bf16");
  // TF32 is a GPU's, whether this machine has one or not.
  CHECK(text_of(lacks(can, on_gpu(Precision::tf32))) == no_driver);
  CHECK_FALSE(lacks_anywhere(can, on_gpu(Precision::tf32)).has_value());
  sweep::Point two = on_gpu(Precision::amp_bf16);
  two.gpus = 2;
  CHECK(text_of(lacks_anywhere(can, two)) == "gpus 2: the trainer runs on at most 1");
  sweep::Point sharded = on_gpu(Precision::amp_bf16);
  sharded.sharding_strategy = Sharding::full_shard;
  CHECK(text_of(lacks_anywhere(can, sharded)) ==
        "sharding_strategy FULL_SHARD: the trainer has NO_SHARD");
  // Ranks of CPUs need libraries that another machine may have.
  sweep::Point ranks = runnable();
  ranks.gpus = 2;
  CHECK(text_of(lacks(can, ranks)) == "gpus 2: the trainer runs on at most 1");
  CHECK_FALSE(lacks_anywhere(can, ranks).has_value());
}

TEST_CASE("a trainer without CUDA runs on no GPU anywhere; an older one says it of this machine") {
  const Capabilities without = without_driver(R"("gpu": null,)");
  CHECK(text_of(lacks_anywhere(without, on_gpu(Precision::amp_bf16))) ==
        "gpu h200: the trainer was built without CUDA");
  CHECK_FALSE(lacks_anywhere(without, runnable()).has_value());
  const Capabilities older = without_driver("");
  CHECK_FALSE(lacks_anywhere(older, on_gpu(Precision::amp_fp16)).has_value());
  CHECK(text_of(lacks(older, on_gpu(Precision::amp_fp16))) ==
        "gpu h200: the trainer has no device for it: there is no driver");
  CHECK_THROWS_AS(without_driver(R"("gpu": {"precisions": ["fp32"]},)"), Error);
}

TEST_CASE("what is lacked for a GPU is told apart from what is lacked for another setting") {
  const auto gpu = lacks(without_driver(kOnGpus), on_gpu(Precision::tf32));
  REQUIRE(gpu.has_value());
  CHECK(gpu->of == Lack::Of::gpu);
  CHECK(gpu->what == "gpu h200");
  CHECK(gpu->why == "the trainer has no device for it: there is no driver");
  sweep::Point ranks = runnable();
  ranks.gpus = 2;
  CHECK(lacks(without_driver(kOnGpus), ranks)->of == Lack::Of::setting);
}

TEST_CASE("a GPU that the trainer has no code for") {
  std::string text = kAnswer;
  text.insert(1, std::string(R"("cuda": {"gpus": [], "none": "there is no driver",
      "architectures": ["80", "90-real", "120"]},)") +
                     kOnGpus);
  const Capabilities can = parse_capabilities(parse_json(text, "answer"));
  const sweep::Point point = on_gpu(Precision::fp32);
  CHECK(text_of(lacks_anywhere(can, point, 75)) ==
        "gpu h200: its compute capability is 7.5, the trainer has code for 8.0 and newer");
  CHECK(text_of(lacks(can, point, 70)).starts_with("gpu h200: its compute capability is 7.0, "));
  CHECK_FALSE(lacks_anywhere(can, point, 80).has_value());
  CHECK_FALSE(lacks_anywhere(can, point, 90).has_value());
  CHECK_FALSE(lacks_anywhere(can, point, 0).has_value());                       // not known
  CHECK_FALSE(lacks_anywhere(without_driver(kOnGpus), point, 70).has_value());  // not said
}
