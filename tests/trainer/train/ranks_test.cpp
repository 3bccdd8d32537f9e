// SPDX-License-Identifier: Apache-2.0
// NO_SHARD over several ranks: the same training as on one rank, and what each mode sends between
// them.
#include "tests/trainer/train/ranks.h"

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <csignal>
#include <tuple>

#include "lib/base/error.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

Setup setup_of(std::int64_t batch, std::int64_t microbatch) {
  Setup setup = small_setup();
  setup.memory.device_batch = batch;
  setup.memory.microbatch = microbatch;
  return setup;
}

float rounded_to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000U);
}

// Returns what a rank sends: half of the gradient of its half of the batch. It is trained on alone
// for a step; a factor of two changes no rounding.
std::vector<float> sent_by(int rank, Setup setup) {
  setup.memory.device_batch /= 2;
  setup.memory.microbatch = setup.memory.device_batch;
  const TokenSource tokens = synthetic_tokens(setup.seed, setup.memory.shape.vocab);
  const std::int64_t first = rank * setup.memory.device_batch;
  Training alone(setup, [&](std::int64_t step, std::int64_t row, std::span<std::int32_t> out) {
    tokens(step, first + row, out);
  });
  alone.run(1);
  std::vector<float> gradient = alone.all("grad");
  for (float& value : gradient) value /= 2;
  return gradient;
}

}  // namespace

TEST_CASE("ranks that share a batch train as one rank does, and all alike") {
  for (const auto& [precision, mixed] : {std::pair{Precision::fp32, MixedPrecision::default_},
                                         {Precision::amp_bf16, MixedPrecision::default_},
                                         {Precision::amp_bf16, MixedPrecision::full}}) {
    for (const bool offload : {false, true}) {
      Setup setup = setup_of(12, 5);
      setup.memory.precision = precision;
      setup.memory.mixed_precision = mixed;
      setup.memory.offload = offload;
      Training one(setup);
      one.run(3);
      for (const int ranks : {2, 3, 4}) {
        const std::vector<RankResult> all = train_ranks(setup, ranks, 3);
        for (const RankResult& rank : all) {
          CHECK(same_bits(rank.masters, all[0].masters));
          CHECK(rank.losses == all[0].losses);
        }
        // In bf16, microbatches of different sizes round differently.
        const bool is_f32 = precision == Precision::fp32;
        CHECK(all[0].losses[0] == doctest::Approx(one.samples[0].loss).epsilon(1e-6));
        CHECK(relative_error(all[0].gradients, one.all("grad")) < (is_f32 ? 1e-5 : 2e-2));
        CHECK(relative_error(all[0].masters, one.all("master")) < (is_f32 ? 1e-5 : 1e-3));
      }
    }
  }
}

TEST_CASE("20 steps on 2 and 4 ranks stay within the bounds of one rank's") {
  // ||theta - theta_one|| / ||theta_one - theta_0|| by unit. It leaves out the bias of keys, which
  // shifts all scores of a query alike: its true gradient is 0, and AdamW only amplifies noise.
  constexpr std::int64_t kSteps = 20;
  const Setup setup = setup_of(12, 5);
  const auto masters = [](Engine& engine) {
    std::vector<std::vector<float>> units;
    const memory::Config& config = engine.config();
    const auto keys = static_cast<std::ptrdiff_t>(config.shape.n_kv_heads * config.shape.head_dim);
    for (std::int64_t unit = 0; unit <= config.shape.n_layers; ++unit) {
      units.push_back(engine.read(engine.memory().flat(unit, "master")));
      if (unit == 0) continue;
      const Tensor bias = engine.memory().master(unit, "qkv.bias");
      const auto* const begin = static_cast<float*>(engine.memory().flat(unit, "master").data);
      const auto first = units.back().begin() + (static_cast<float*>(bias.data) - begin);
      const auto queries =
          static_cast<std::ptrdiff_t>(config.shape.n_heads * config.shape.head_dim);
      std::fill(first + queries, first + queries + keys, 0.0F);
    }
    return units;
  };
  Training one(setup);
  const auto begin = masters(one.engine);
  one.run(kSteps);
  const auto end = masters(one.engine);
  for (const int ranks : {2, 4}) {
    std::vector<std::vector<float>> shared;
    std::vector<float> losses;
    on_ranks(ranks, [&](int rank, Communicator& communicator) {
      Setup part = setup;
      part.memory.world = ranks;
      part.memory.device_batch = 12 / ranks;
      part.memory.microbatch = std::min<std::int64_t>(5, 12 / ranks);
      const std::unique_ptr<Device> device = cpu_device(1);
      Engine engine(*device, communicator, part,
                    synthetic_tokens(setup.seed, setup.memory.shape.vocab));
      const RankResult result = train_rank(engine, kSteps);
      if (rank != 0) return;
      losses = result.losses;
      shared = masters(engine);
    });
    double curve = 0;
    for (std::size_t step = 0; step < losses.size(); ++step)
      curve = std::max(curve, std::abs(losses[step] / one.samples[step].loss - 1));
    double change = 0;
    for (std::size_t unit = 0; unit < end.size(); ++unit) {
      std::vector<float> moved = end[unit];
      std::vector<float> moved_shared = shared[unit];
      for (std::size_t i = 0; i < moved.size(); ++i) {
        moved[i] -= begin[unit][i];
        moved_shared[i] -= begin[unit][i];
      }
      change = std::max(change, relative_error(moved_shared, moved));
    }
    MESSAGE(ranks, " ranks: loss curve ", curve, ", change of parameters ", change);
    CHECK(losses.size() == kSteps);
    CHECK(curve <= 1e-6);
    CHECK(change <= 3e-4);
    CHECK(change > 0);
  }
}

TEST_CASE("ranks that are told to stop at different moments end behind the same step") {
  for (const auto& [first, second, signal] :
       {std::tuple{SIGTERM, 0, SIGTERM}, {0, SIGTERM, SIGTERM}, {SIGTERM, SIGUSR1, SIGUSR1}}) {
    CAPTURE(first);
    CAPTURE(second);
    Setup setup = setup_of(6, 1);
    setup.memory.world = 3;
    setup.memory.device_batch = 2;
    std::array<std::atomic<int>, 3> stops{};
    std::array<LoopEnd, 3> ends;
    on_ranks(3, [&](int rank, Communicator& communicator) {
      const std::unique_ptr<Device> device = cpu_device(1);
      const TokenSource tokens = synthetic_tokens(setup.seed, setup.memory.shape.vocab);
      std::atomic<int>& stop = stops[static_cast<std::size_t>(rank)];
      // Row 0 is in rank 0's first microbatch, row 3 in rank 1's second.
      Engine engine(*device, communicator, setup,
                    [&](std::int64_t step, std::int64_t row, std::span<std::int32_t> out) {
                      if (step == 5 && row == 0) stop = first;
                      if (step == 5 && row == 3) stop = second;
                      tokens(step, row, out);
                    });
      std::vector<runlog::StepSample> samples;
      samples.reserve(100);
      ends[static_cast<std::size_t>(rank)] =
          train(engine, 100, 0, stop, samples, [](const runlog::StepSample&) {});
      if (samples.size() != 5) throw std::runtime_error(std::to_string(samples.size()));
    });
    for (const LoopEnd& end : ends) {
      CHECK(end.kind == LoopEnd::Kind::interrupted);
      CHECK(end.step == 5);
      CHECK(end.signal == signal);
    }
  }
}

TEST_CASE("gradients travel in f32, under PURE rounded once before and once after the sum") {
  for (const MixedPrecision mixed : {MixedPrecision::default_, MixedPrecision::pure}) {
    Setup setup = setup_of(4, 2);
    setup.memory.precision = Precision::amp_bf16;
    const std::vector<float> first = sent_by(0, setup);
    const std::vector<float> second = sent_by(1, setup);
    setup.memory.mixed_precision = mixed;
    const RankResult got = train_ranks(setup, 2, 1)[0];
    REQUIRE(got.gradients.size() == first.size());
    std::size_t wrong = 0;
    std::size_t telling = 0;  // elements in which DEFAULT and PURE differ
    for (std::size_t i = 0; i < first.size(); ++i) {
      const float exact = first[i] + second[i];
      const float pure = rounded_to_bf16(rounded_to_bf16(first[i]) + rounded_to_bf16(second[i]));
      wrong += got.gradients[i] != (mixed == MixedPrecision::pure ? pure : exact) ? 1 : 0;
      telling += pure != exact ? 1 : 0;
    }
    CHECK(wrong == 0);
    CHECK(telling > first.size() / 2);
  }
}

TEST_CASE("a rank that fails ends the others, and is named") {
  Setup setup = setup_of(4, 2);
  setup.memory.world = 2;
  setup.memory.device_batch = 2;
  std::string seen;
  try {
    on_ranks(2, [&](int rank, Communicator& communicator) {
      const std::unique_ptr<Device> device = cpu_device(1);
      Engine engine(*device, communicator, setup,
                    [&](std::int64_t step, std::int64_t, std::span<std::int32_t> tokens) {
                      if (rank == 1 && step == 2) throw Error(ExitCode::failed, "data", "is gone");
                      std::ranges::fill(tokens, 3);
                    });
      try {
        train_rank(engine, 4);
      } catch (const Error& error) {
        if (rank == 0) seen = error.what();
        throw;
      }
    });
    FAIL("no rank failed");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::comm_error);
  }
  CHECK(seen.find("rank 1") != std::string::npos);
}

TEST_CASE("an engine for other ranks than there are is refused") {
  Setup setup = setup_of(4, 2);
  setup.memory.world = 2;
  const std::unique_ptr<Device> device = cpu_device(1);
  const std::unique_ptr<Communicator> alone = single_communicator();
  CHECK_THROWS_AS(Engine(*device, *alone, setup, synthetic_tokens(1, 201)), Error);
}
