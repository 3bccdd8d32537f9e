// SPDX-License-Identifier: Apache-2.0
// A profile of real steps: what it counts, and that training is unchanged.
#include "trainer/train/profile.h"

#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/trainer/train/training.h"
#include "trainer/model/decoder.h"
#include "trainer/optim/update.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

Setup recomputing() {
  Setup setup = small_setup();
  setup.memory.checkpointing = Checkpointing::full;
  setup.memory.precision = Precision::amp_bf16;
  return setup;
}

struct Profiled {
  std::unique_ptr<Device> device = cpu_device(1);
  ProfilingDevice profiling{*device};
  std::unique_ptr<Communicator> alone = single_communicator();
  Engine engine;
  std::atomic<int> stop{0};
  std::vector<runlog::StepSample> samples;

  explicit Profiled(const Setup& setup)
      : engine(profiling, *alone, setup, synthetic_tokens(setup.seed, setup.memory.shape.vocab)) {}

  void run(std::int64_t steps) {
    samples.reserve(static_cast<std::size_t>(steps));
    train(engine, steps, 0, stop, samples, [](const auto&) {});
  }
};

}  // namespace

TEST_CASE("every operation of the profiled steps is counted under its phase, no other") {
  const Setup setup = recomputing();
  Profiled run(setup);
  run.run(3);
  const auto profile = profile_steps(run.engine, run.profiling, 3, run.stop);
  REQUIRE(profile.has_value());
  CHECK(profile->steps == kProfiledSteps);

  std::map<std::pair<std::string, std::string>, std::int64_t> expected;
  double flops = 0;
  const auto count = [&](const Sequence& sequence) {
    for (const Issue& issue : sequence) {
      expected[{op_name(*issue.op()), std::string(to_text(issue.phase))}] += kProfiledSteps;
      flops += kProfiledSteps * cost(*issue.op()).matmul_flops;
    }
  };
  const Memory& memory = run.engine.memory();
  for (const std::int64_t sequences : memory::microbatches(5, 2))
    count(microbatch_operations(memory, sequences, false));
  count(update_operations(memory, setup.recipe));
  double seconds = 0;
  double counted_flops = 0;
  for (const OpTotal& total : profile->operations) {
    CHECK(total.seconds > 0);
    seconds += total.seconds;
    counted_flops += total.matmul_flops;
    if (total.name == "copy") continue;
    CAPTURE(total.name);
    CAPTURE(total.phase);
    CHECK(total.count == expected[{std::string(total.name), std::string(total.phase)}]);
    expected.erase({std::string(total.name), std::string(total.phase)});
  }
  CHECK(expected.empty());
  CHECK(counted_flops == doctest::Approx(flops));
  CHECK(counted_flops == doctest::Approx(kProfiledSteps * run.engine.step_cost().executed));
  CHECK(seconds <= profile->seconds);

  // On a CPU everything runs in one stream, so the shares add up to one.
  const runlog::Budget shares = budget(*profile);
  CHECK(shares.gemm > 0);
  CHECK(shares.attention > 0);
  CHECK(shares.optimizer > 0);
  CHECK(shares.data_wait > 0);
  CHECK(shares.offload == 0);
  CHECK(shares.gemm + shares.attention + shares.memory_bound + shares.optimizer + shares.offload +
            shares.data_wait + shares.other ==
        doctest::Approx(1));
}

TEST_CASE("steps that are profiled are steps like any other") {
  const Setup setup = recomputing();
  Profiled profiled(setup);
  profiled.run(2);
  REQUIRE(profile_steps(profiled.engine, profiled.profiling, 2, profiled.stop).has_value());
  Training plain(setup);
  plain.run(2 + 1 + kProfiledSteps);
  const Tensor masters = plain.engine.memory().flat(1, "master");
  CHECK(same_bits(profiled.engine.read(profiled.engine.memory().flat(1, "master")),
                  plain.engine.read(masters)));
  // The samples hold the measured steps and nothing else.
  CHECK(profiled.samples.size() == 2);
}

TEST_CASE("a stop ends the profile without one") {
  Profiled run(small_setup());
  run.run(1);
  run.stop = 15;
  CHECK_FALSE(profile_steps(run.engine, run.profiling, 1, run.stop).has_value());
}

TEST_CASE("the table and the records hold means of a step") {
  Profile profile{.steps = 2, .seconds = 4, .data_wait_s = 0.5, .operations = {}};
  profile.operations = {{"gemm", "forward", OpClass::gemm, 20, 2, 8e9, 6e12},
                        {"copy", "", OpClass::offload, 2, 0.25, 1e9, 0}};
  for (int i = 0; i < 30; ++i)
    profile.operations.push_back({"cast", "forward", OpClass::memory_bound, 2, 0.01, 1e8, 0});
  const runlog::Budget shares = budget(profile);
  CHECK(shares.gemm == 0.5);
  CHECK(shares.offload == 0.0625);
  CHECK(shares.memory_bound == doctest::Approx(0.075));
  CHECK(shares.data_wait == 0.125);
  CHECK(shares.other == doctest::Approx(1 - 0.5 - 0.0625 - 0.075 - 0.125));

  const auto records = profile_fields(profile);
  REQUIRE(records.size() == 2);
  CHECK(records[0]["part"] == 1);
  CHECK(records[1]["part"] == 2);
  CHECK(records[0]["operations"].size() + records[1]["operations"].size() == 32);
  CHECK(records[0]["step_s"] == 2);
  CHECK(records[0]["data_wait_s"] == 0.25);
  CHECK(records[0]["operations"][0].dump() ==
        R"({"op":"gemm","phase":"forward","class":"gemm","count":10,"seconds":1.0,)"
        R"("gb_per_s":4.0,"gflop_per_s":3000.0})");
  CHECK(records[0]["operations"][1].dump() ==
        R"({"op":"copy","class":"offload","count":1,"seconds":0.125,"gb_per_s":4.0})");

  const std::string table = profile_table(profile);
  CHECK(table.find("Profile of 2 steps after the measured ones, 2000.000 ms each\n") == 0);
  CHECK(table.find("GEMM                                       1000.000 ms    50.0 %\n"
                   "  gemm, forward                      10    1000.000 ms    50.0 %      4.00"
                   "    3000.0\n") != std::string::npos);
  CHECK(table.find("\ndata wait                                   250.000 ms    12.5 %\n") !=
        std::string::npos);

  // If streams overlap, nothing is left over, and nothing is negative.
  profile.operations[0].seconds = 10;
  CHECK(budget(profile).other == 0);
  CHECK(budget(profile).gemm == 2.5);
}
