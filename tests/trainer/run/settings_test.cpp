// SPDX-License-Identifier: Apache-2.0
// Settings of a point that change how the engine trains, as the program's log shows them.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "lib/base/file.h"
#include "lib/point/memory_need.h"
#include "tests/temporary.h"
#include "tests/trainer/run/program.h"

using namespace tessera;
using namespace tessera::trainer::test;
using tessera::test::TemporaryFolder;
using Json = nlohmann::ordered_json;

namespace {

struct Logged {
  Json effective, footer;
};

Logged train_with(const std::function<void(sweep::RunSpec&)>& change) {
  const TemporaryFolder folder;
  sweep::RunSpec spec = small_spec(folder.path());
  change(spec);
  const ProgramResult result = train_spec(spec);
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  Logged logged;
  for (const Json& record : records_of(read_file(log_in(folder.path())))) {
    if (record.at("t") == "effective") logged.effective = record;
    if (record.at("t") == "footer") logged.footer = record;
  }
  return logged;
}

}  // namespace

TEST_CASE("an automatic microbatch becomes what submit found, or all that fits") {
  const auto size = [](std::int64_t resolved) {
    return train_with([&](sweep::RunSpec& spec) {
             spec.point.microbatch_size = sweep::kAutoMicrobatch;
             spec.microbatch = resolved;
           })
        .effective.at("microbatch_size")
        .get<int>();
  };
  CHECK(size(3) == 3);
  CHECK(size(0) == 5);
}

TEST_CASE("offload, FULL and recompute of some blocks are logged, and train alike") {
  const Logged plain = train_with([](sweep::RunSpec&) {});
  CHECK(plain.effective.at("activation_cpu_offload") == false);
  CHECK(plain.effective.at("recompute") == "none");
  const Logged offloaded = train_with([](sweep::RunSpec& spec) {
    spec.point.model.n_layers = 4;
    spec.point.activation_cpu_offload = true;
  });
  CHECK(offloaded.effective.at("activation_cpu_offload") == true);
  const Logged some = train_with([](sweep::RunSpec& spec) {
    spec.point.activation_checkpointing = Checkpointing::full;
    spec.point.checkpointing_blocks = "first-1";
  });
  CHECK(some.effective.at("activation_checkpointing") == "full");
  CHECK(some.effective.at("recompute") == "full first-1");
  CHECK(some.footer.at("loss_last") == plain.footer.at("loss_last"));
  // One of two blocks is recomputed.
  const Logged all = train_with(
      [](sweep::RunSpec& spec) { spec.point.activation_checkpointing = Checkpointing::full; });
  const auto more = [&](const Logged& logged) {
    return logged.footer.at("flops_recompute_per_token").get<double>() -
           plain.footer.at("flops_recompute_per_token").get<double>();
  };
  CHECK(more(some) > 0);
  CHECK(more(all) == doctest::Approx(2 * more(some)));
  const Logged full = train_with([](sweep::RunSpec& spec) {
    spec.point.precision = Precision::amp_bf16;
    spec.point.mixed_precision = MixedPrecision::full;
  });
  CHECK(full.effective.at("mixed_precision") == "FULL");
  CHECK(full.footer.at("loss_last").get<double>() ==
        doctest::Approx(plain.footer.at("loss_last").get<double>()).epsilon(0.01));
}

TEST_CASE("whether products did the GELU is logged, and false where they cannot") {
  const auto run = [](model::Activation activation, bool fused) {
    return train_with([&](sweep::RunSpec& spec) {
      spec.point.model.activation = activation;
      spec.point.fused_gelu = fused;
    });
  };
  using enum model::Activation;
  CHECK(run(gelu_tanh, true).effective.at("fused_gelu") == true);
  CHECK(run(gelu_tanh, false).effective.at("fused_gelu") == false);
  CHECK(run(gelu_erf, true).effective.at("fused_gelu") == false);
  // In f32 on a CPU it is the same computation.
  CHECK(run(gelu_tanh, true).footer.at("loss_last") ==
        run(gelu_tanh, false).footer.at("loss_last"));
}

TEST_CASE("--print-schedule prints the step of any point") {
  sweep::RunSpec spec = small_spec("");
  const auto printed = [&] {
    return run_trainer(
        {.arguments = {"--spec", "-", "--print-schedule"}, .input = run_spec_json(spec)});
  };
  const ProgramResult one = printed();
  CHECK(one.exit_code == 0);
  CHECK(one.out.starts_with("    0 compute  forward    root       microbatch 0\n"));
  CHECK(one.out.find("microbatch 2\n") != std::string::npos);  // 5 sequences by 2
  spec.point.gpu = "h100_80gb";
  spec.point.gpus = 5;
  spec.point.sharding_strategy = Sharding::full_shard;
  const ProgramResult sharded = printed();
  CHECK(sharded.exit_code == 0);
  CHECK(sharded.out.starts_with("    0 gather   gather     root "));
  for (const std::int64_t gpus : {3, 8}) {
    spec.point.gpus = gpus;
    const ProgramResult wrong = printed();
    CHECK(wrong.exit_code == 10);
    CHECK(wrong.err.find("point.global_batch: 5 is not divisible by ") != std::string::npos);
  }
  spec.point.gpus = 1;
  spec.point.global_batch = std::int64_t{1} << 40;
  CHECK(printed().exit_code == 11);
  spec.point.global_batch = 5;
  spec.point.microbatch_size = sweep::kAutoMicrobatch;
  CHECK(printed().exit_code == 10);
}
