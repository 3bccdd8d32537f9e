// SPDX-License-Identifier: Apache-2.0
// Every setting that the engine does not act on is refused by name, and the log has the refusal.
#include "trainer/run/accept.h"

#include <doctest/doctest.h>

#include <functional>

#include "apps/submit/trainers/capabilities.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "tests/temporary.h"
#include "tests/trainer/run/program.h"
#include "trainer/run/records.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;
using sweep::Point;

namespace {

struct Refusal {
  ExitCode code = ExitCode::ok;
  std::string what;
};

// Returns the refusal of a point, started with as many ranks as it has gpus, or with `place`.
Refusal refusal(const std::function<void(Point&)>& change, std::optional<Place> place = {}) {
  sweep::RunSpec spec = small_spec("");
  change(spec.point);
  if (!place)
    place = {.ranks = static_cast<int>(spec.point.gpus),
             .nodes = static_cast<int>(spec.point.nodes)};
  try {
    accept(spec, *place);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

struct Case {
  const char* start;  // of the message
  std::function<void(Point&)> change;
};

}  // namespace

TEST_CASE("settings that the engine does not act on") {
  const std::vector<Case> cases{
      {"point.gpu: h100_80gb: ", [](Point& p) { p.gpu = "h100_80gb"; }},
      {"point.gpus: 1000: ", [](Point& p) { p.gpus = 1000; }},
      {"point.hybrid_group: 4: ", [](Point& p) { p.hybrid_group = 4; }},
      {"point.precision: amp_fp16: ", [](Point& p) { p.precision = Precision::amp_fp16; }},
      {"point.precision: amp_fp8: ", [](Point& p) { p.precision = Precision::amp_fp8; }},
      {"point.mixed_precision: PURE: ", [](Point& p) { p.mixed_precision = MixedPrecision::pure; }},
      {"point.mixed_precision: PURE: under fp32 ",
       [](Point& p) {
         p.gpus = 5;
         p.sharding_strategy = Sharding::no_shard;
         p.mixed_precision = MixedPrecision::pure;
       }},
      {"point.sharding_strategy: FULL_SHARD: ", [](Point& p) { p.gpus = 5; }},
      {"point.sharding_strategy: HYBRID_SHARD: ",
       [](Point& p) {
         p.gpus = 5;
         p.sharding_strategy = Sharding::hybrid_shard;
       }},
      {"point.mixed_precision: FULL: ", [](Point& p) { p.mixed_precision = MixedPrecision::full; }},
      {"point.data: c4: ", [](Point& p) { p.data = "c4"; }},
      {"point.microbatch_size: 2 of 100000 ", [](Point& p) { p.global_batch = 100000; }},
      {"point.seq_len: 2 x 2000000000 ", [](Point& p) { p.seq_len = 2000000000; }},
      {"point.model.vocab: ", [](Point& p) { p.model.vocab = std::int64_t{1} << 31; }},
  };
  for (const Case& one : cases) {
    CAPTURE(one.start);
    const Refusal refused = refusal(one.change);
    CHECK(refused.code == ExitCode::unsupported);
    CHECK(refused.what.starts_with(one.start));
    CHECK(refused.what.find("; ") != std::string::npos);  // it says what would be right
  }
}

TEST_CASE("what --capabilities says is what is accepted") {
  const ProgramResult answer = run_trainer({.arguments = {"--capabilities"}});
  REQUIRE(answer.exit_code == 0);
  const submit::Capabilities can = submit::parse_capabilities(parse_json(answer.out, "trainer"));
  CHECK(can.cpus >= 1);
  int refused = 0;
  int accepted = 0;
  const auto agree = [&](const std::function<void(Point&)>& change) {
    Point point = small_spec("").point;
    point.sharding_strategy = Sharding::no_shard;  // as submit passes it
    change(point);
    const auto lacked = submit::lacks(can, point);
    const Refusal refusal_of_it = refusal([&](Point& p) { p = point; });
    CAPTURE((lacked ? lacked->text() : "nothing"));
    CAPTURE(refusal_of_it.what);
    CHECK(lacked.has_value() == (refusal_of_it.code == ExitCode::unsupported));
    ++(lacked ? refused : accepted);
  };
  const auto each = [&](auto member) {
    using Enum = std::remove_reference_t<decltype(member(std::declval<Point&>()))>;
    for (const auto& [value, name] : Names<Enum>::table) {
      CAPTURE(name);
      agree([&, chosen = value](Point& p) { member(p) = chosen; });
    }
  };
  each([](Point& p) -> Precision& { return p.precision; });
  each([](Point& p) -> MixedPrecision& {
    p.precision = Precision::amp_bf16;  // submit knows only one mode for fp32
    return p.mixed_precision;
  });
  each([](Point& p) -> Checkpointing& { return p.activation_checkpointing; });
  each([](Point& p) -> model::Norm& { return p.model.norm; });
  each([](Point& p) -> model::Positions& { return p.model.positions; });
  each([](Point& p) -> model::Activation& { return p.model.activation; });
  agree([](Point& p) { p.model.tied = false; });
  agree([](Point& p) { p.activation_cpu_offload = true; });
  agree([](Point& p) { p.microbatch_size = sweep::kAutoMicrobatch; });
  agree([](Point& p) { p.checkpointing_blocks = "first-1"; });
  agree([](Point& p) { p.data = "c4"; });
  agree([](Point& p) { p.data = "/data/corpus.tok"; });
  agree([](Point& p) { p.data = "file"; });
  agree([](Point& p) { p.gpu = "h200"; });
  agree([](Point& p) { p.gpus = 5; });
  agree([](Point& p) { p.gpus = 500; });
  agree([](Point& p) {
    p.gpus = 5;
    p.precision = Precision::amp_bf16;
    p.mixed_precision = MixedPrecision::pure;
  });
  for (const auto& [sharding, name] : Names<Sharding>::table) {
    agree([chosen = sharding](Point& p) {
      p.gpus = 5;
      p.sharding_strategy = chosen;
    });
  }
  CHECK(refused >= 5);
  CHECK(accepted >= 6);
}

TEST_CASE("settings that contradict themselves") {
  CHECK(refusal([](Point& p) { p.warmup = p.steps; }).code == ExitCode::spec);
  CHECK(refusal([](Point& p) { p.steps = 2000000; }).code == ExitCode::spec);
  CHECK(refusal([](Point& p) { p.threads = 100000; }).code == ExitCode::spec);
  const Refusal refused = refusal([](Point& p) { p.env["TESSERA_TEST_UNSET"] = "1"; });
  CHECK(refused.code == ExitCode::spec);
  CHECK(refused.what.starts_with("point.env.TESSERA_TEST_UNSET: is not set in this process"));
}

TEST_CASE("a point needs as many ranks and nodes as were started") {
  const auto shared = [](std::int64_t gpus, std::int64_t nodes) {
    return [=](Point& p) {
      p.gpus = gpus;
      p.nodes = nodes;
      p.global_batch = 20;
      p.sharding_strategy = Sharding::no_shard;
    };
  };
  CHECK(refusal(shared(4, 2)).code == ExitCode::ok);
  CHECK(refusal(shared(4, 1), Place{}).what ==
        "point.gpus: 4: one process is one rank; start it as trainer --nproc 4, by srun or by "
        "torchrun");
  CHECK(refusal(shared(4, 1), Place{.ranks = 2}).what ==
        "point.gpus: 2 ranks were started, the point has 4 gpus; start 4");
  CHECK(refusal(shared(1, 1), Place{.ranks = 2}).what ==
        "point.gpus: 2 ranks were started, the point has 1 gpus; start 1");
  CHECK(refusal(shared(4, 2), Place{.ranks = 4}).what ==
        "point.nodes: the ranks were started on 1, the point has 2; start them on 2");
  CHECK(refusal(shared(3, 1)).what ==
        "point.global_batch: 20 is not divisible by 3 ranks; a multiple of 3");
  CHECK(refusal(shared(3, 1)).code == ExitCode::spec);
}

TEST_CASE("what one rank makes no difference to is accepted") {
  for (const Sharding sharding : {Sharding::full_shard, Sharding::shard_grad_op, Sharding::no_shard,
                                  Sharding::hybrid_shard}) {
    CHECK(refusal([&](Point& p) { p.sharding_strategy = sharding; }).code == ExitCode::ok);
  }
  CHECK(refusal([](Point& p) { p.model.n_kv_heads = 1; }).code == ExitCode::ok);
  CHECK(refusal([](Point& p) { p.model.biases = {false, false, false, false}; }).code ==
        ExitCode::ok);
}

TEST_CASE("a refused run has a header and a footer") {
  const tessera::test::TemporaryFolder folder;
  sweep::RunSpec spec = small_spec(folder.path());
  spec.point.precision = Precision::amp_fp8;
  const ProgramResult result = train_spec(spec);
  CHECK(result.exit_code == 11);
  CHECK(result.err ==
        "trainer: point.precision: amp_fp8: needs 8-bit products with a scale a tensor, which no "
        "operation has yet; use fp32 or amp_bf16\n");
  const auto records = records_of(read_file(log_in(folder.path())));
  REQUIRE(records.size() == 3);
  CHECK(records[0].at("t") == "header");
  CHECK(row_of(records).at("label") == "tiny");
  const auto& footer = records.back();
  CHECK(footer.at("status") == "start-fail");
  CHECK(footer.at("exit") == 11);
  CHECK(footer.at("reason").get<std::string>().starts_with("point.precision: amp_fp8"));
  CHECK_FALSE(footer.contains("measured_s"));
}

TEST_CASE("another device than expected is refused, any of several is taken") {
  const tessera::test::TemporaryFolder folder;
  sweep::RunSpec spec = small_spec(folder.path());
  spec.expect = {"NVIDIA H200"};
  const ProgramResult result = train_spec(spec);
  CHECK(result.exit_code == 17);
  CHECK(result.err.find("expect: the device here is ") != std::string::npos);
  CHECK(records_of(read_file(log_in(folder.path()))).back().at("status") == "start-fail");
  CHECK_NOTHROW(expect_device(spec, "NVIDIA H200"));
  spec.expect.emplace_back("other");
  CHECK_NOTHROW(expect_device(spec, "other"));
  CHECK_THROWS_AS(expect_device(spec, "NVIDIA H20"), Error);
}

TEST_CASE("a device that the catalogue calls otherwise is refused, unless its name was given") {
  sweep::RunSpec spec;
  spec.point.gpu = "h200";
  CHECK_NOTHROW(expect_device(spec, "anything"));
  spec.expect_match = {"^NVIDIA H200$", "^NVIDIA H200 "};
  spec.expect_not = {"NVL"};
  CHECK_NOTHROW(expect_device(spec, "NVIDIA H200"));
  CHECK_NOTHROW(expect_device(spec, "NVIDIA H200 SXM"));
  CHECK_THROWS_AS(expect_device(spec, "NVIDIA H200 NVL"), Error);
  try {
    expect_device(spec, "NVIDIA A100-SXM4-80GB");
    FAIL("taken");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::wrong_device);
    CHECK(std::string(error.what()) ==
          "expect: the device here is NVIDIA A100-SXM4-80GB, which the catalogue does not call "
          "h200; the right name in gpus, or expect: [\"NVIDIA A100-SXM4-80GB\"] beside it");
  }
  spec.expect = {"NVIDIA A100-SXM4-80GB"};
  CHECK_NOTHROW(expect_device(spec, "NVIDIA A100-SXM4-80GB"));
}

TEST_CASE("a model over the memory ends with host-oom") {
  const tessera::test::TemporaryFolder folder;
  sweep::RunSpec spec = small_spec(folder.path());
  spec.point.model = {.d_model = 32768,
                      .n_layers = 100,
                      .n_heads = 256,
                      .n_kv_heads = 256,
                      .head_dim = 128,
                      .ffn = 131072,
                      .vocab = 50368};
  const ProgramResult result = train_spec(spec);
  CHECK(result.exit_code == 13);
  const auto records = records_of(read_file(log_in(folder.path())));
  CHECK(records.back().at("status") == "host-oom");
  // The log says on what it was tried.
  for (const char* kind : {"host", "peak"}) {
    CHECK(std::ranges::any_of(records, [&](const auto& record) { return record.at("t") == kind; }));
  }
}

TEST_CASE("which variables may be recorded") {
  CHECK(may_be_recorded("NCCL_DEBUG=INFO"));
  CHECK(may_be_recorded("OMP_NUM_THREADS"));
  CHECK(may_be_recorded("SLURM_JOB_ID"));
  CHECK_FALSE(may_be_recorded("SLURM_JWT"));
  CHECK_FALSE(may_be_recorded("MY_NCCL_TOKEN"));
  CHECK_FALSE(may_be_recorded("HOME"));
}
