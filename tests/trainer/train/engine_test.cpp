// SPDX-License-Identifier: Apache-2.0
// Results that must not depend on how a step is split, and things that must not happen in a step.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "lib/base/error.h"
#include "lib/flops/utilization.h"
#include "tests/trainer/train/allocations.h"
#include "tests/trainer/train/training.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

TEST_CASE("the same seed gives the same bits, another one others") {
  for (const Precision precision : {Precision::fp32, Precision::amp_bf16}) {
    Setup setup = small_setup();
    setup.memory.precision = precision;
    Training a(setup, 2);
    Training b(setup, 2);
    a.run(4);
    b.run(4);
    CHECK(same_bits(a.all("master"), b.all("master")));
    CHECK(same_bits(a.all("grad"), b.all("grad")));
    CHECK(a.samples.back().loss == b.samples.back().loss);
    setup.seed = 18;
    Training c(setup, 2);
    c.run(4);
    CHECK_FALSE(same_bits(a.all("master"), c.all("master")));
  }
}

TEST_CASE("whatever is computed again, the bits are those of keeping all") {
  using memory::Keep;
  const std::vector<memory::RecomputeMask> masks{
      {Keep::input, Keep::input, Keep::input},  // full
      {Keep::selective, Keep::selective, Keep::selective},
      {Keep::input, Keep::all, Keep::all},            // the first
      {Keep::all, Keep::all, Keep::input},            // the last
      {Keep::selective, Keep::all, Keep::selective},  // every second
      {Keep::selective, Keep::input, Keep::all},
      {Keep::input, Keep::selective, Keep::input}};
  for (const Shape shape : {Shape::mpt, Shape::llama}) {
    for (const Precision precision : {Precision::fp32, Precision::amp_bf16}) {
      Setup setup = small_setup();
      if (shape == Shape::llama) make_llama(setup.memory.shape);
      setup.memory.precision = precision;
      Training none(setup);
      none.run(3);
      CHECK(none.engine.step_cost().recomputed == 0);
      for (const memory::RecomputeMask& mask : masks) {
        setup.memory.mask = mask;
        Training again(setup);
        const std::int64_t saved =
            none.engine.plan().total_bytes() - again.engine.plan().total_bytes();
        // Recomputing only the last block saves nothing: its buffers exist when memory is needed
        // most.
        CHECK(saved >= (mask == masks[3] ? 0 : 1));
        again.run(3);
        for (std::size_t step = 0; step < 3; ++step) {
          CHECK(none.samples[step].loss == again.samples[step].loss);
          CHECK(none.samples[step].grad_norm == again.samples[step].grad_norm);
        }
        CHECK(same_bits(none.all("grad"), again.all("grad")));
        CHECK(same_bits(none.all("master"), again.all("master")));
        // Selective blocks recompute no GEMM.
        const StepCost cost = again.engine.step_cost();
        CHECK(cost.executed == doctest::Approx(none.engine.step_cost().executed + cost.recomputed));
        CHECK((cost.recomputed > 0) == (std::ranges::find(mask, Keep::input) != mask.end()));
        // Expected FLOPs by the formula, except attention, of which the device computes half the
        // square.
        const memory::Config& config = again.engine.config();
        const auto blocks = std::ranges::count(mask, Keep::input);
        const double half_square = 2.0 * static_cast<double>(model::attention_width(config.shape) *
                                                             config.seq_len * blocks);
        CHECK(cost.recomputed / static_cast<double>(config.device_batch * config.seq_len) ==
              doctest::Approx(
                  flops::recomputed_flops_per_token(config.shape, config.seq_len, blocks) -
                  half_square)
                  .epsilon(1e-9));
      }
    }
  }
}

namespace {

// A set-up like GPT-2's, with an MLP whose activation can be a GEMM's epilogue.
Setup gpt2_setup(Precision precision, bool fused) {
  Setup setup = small_setup();
  setup.memory.shape.activation = model::Activation::gelu_tanh;
  setup.memory.precision = precision;
  setup.memory.fused_gelu = fused;
  return setup;
}

std::int64_t count_of(const Training& training, GemmEpilogue epilogue) {
  return std::ranges::count_if(microbatch_operations(training.engine.memory(), 2, true),
                               [&](const Issue& issue) {
                                 const Op* op = issue.op();
                                 const Gemm* gemm = op == nullptr ? nullptr : std::get_if<Gemm>(op);
                                 return gemm != nullptr && gemm->epilogue == epilogue;
                               });
}

}  // namespace

TEST_CASE("products that do a GELU train as the activation on its own does") {
  for (const Precision precision : {Precision::fp32, Precision::amp_bf16}) {
    for (const bool biases : {true, false}) {
      Setup setup = gpt2_setup(precision, false);
      setup.memory.shape.biases.mlp = biases;
      Training apart(setup);
      setup.memory.fused_gelu = true;
      Training fused(setup);
      CHECK(count_of(fused, GemmEpilogue::gelu) == 3);
      CHECK(count_of(fused, GemmEpilogue::dgelu) == 3);
      CHECK(count_of(apart, GemmEpilogue::gelu) + count_of(apart, GemmEpilogue::dgelu) == 0);
      CHECK(fused.engine.plan().total_bytes() == apart.engine.plan().total_bytes());
      CHECK(fused.engine.step_cost().executed == apart.engine.step_cost().executed);
      apart.run(3);
      fused.run(3);
      if (precision == Precision::fp32) {
        // Nothing is rounded between a GEMM and its epilogue's activation, so the CPU's bits are
        // the same.
        CHECK(same_bits(fused.all("grad"), apart.all("grad")));
        CHECK(same_bits(fused.all("master"), apart.all("master")));
        continue;
      }
      CHECK_FALSE(same_bits(fused.all("grad"), apart.all("grad")));
      CHECK(relative_error(fused.all("grad"), apart.all("grad")) < 2e-2);
      CHECK(fused.samples.back().loss == doctest::Approx(apart.samples.back().loss).epsilon(1e-3));
    }
  }
}

TEST_CASE(
    "of a GELU that products did, what is computed again is the product's or the argument's") {
  for (const Precision precision : {Precision::fp32, Precision::amp_bf16}) {
    Setup setup = gpt2_setup(precision, true);
    Training none(setup);
    setup.memory.checkpointing = Checkpointing::full;
    Training full(setup);
    setup.memory.checkpointing = Checkpointing::selective;
    Training selective(setup);
    CHECK(count_of(full, GemmEpilogue::gelu) == 6);
    CHECK(count_of(selective, GemmEpilogue::gelu) == 3);
    for (Training* each : {&none, &full, &selective}) each->run(1);
    CHECK(same_bits(full.all("grad"), none.all("grad")));
    // Selective recompute starts from the argument as it was stored.
    CHECK(selective.samples[0].loss == none.samples[0].loss);
    CHECK(same_bits(selective.all("grad"), none.all("grad")) == (precision == Precision::fp32));
    CHECK(relative_error(selective.all("grad"), none.all("grad")) < 1e-2);
  }
}

TEST_CASE("an activation that products cannot do is done apart, whatever was asked for") {
  for (const auto& [activation, ffn] : {std::pair{model::Activation::gelu_erf, std::int64_t{96}},
                                        {model::Activation::swiglu, std::int64_t{96}},
                                        {model::Activation::gelu_tanh, std::int64_t{92}}}) {
    Setup setup = gpt2_setup(Precision::amp_bf16, true);
    setup.memory.shape.activation = activation;
    setup.memory.shape.ffn = ffn;
    CHECK_FALSE(memory::fuses_gelu(setup.memory));
    Training asked(setup);
    setup.memory.fused_gelu = false;
    Training not_asked(setup);
    CHECK(count_of(asked, GemmEpilogue::gelu) + count_of(asked, GemmEpilogue::dgelu) == 0);
    asked.run(1);
    not_asked.run(1);
    CHECK(same_bits(asked.all("master"), not_asked.all("master")));
  }
}

TEST_CASE("what waits in host memory comes back as it was") {
  for (const Precision precision : {Precision::fp32, Precision::amp_bf16}) {
    for (const Checkpointing checkpointing :
         {Checkpointing::none, Checkpointing::selective, Checkpointing::full}) {
      for (const std::int64_t layers : {1, 2, 5}) {
        Setup setup = small_setup();
        setup.memory.shape.n_layers = layers;
        setup.memory.precision = precision;
        setup.memory.checkpointing = checkpointing;
        Training here(setup);
        setup.memory.offload = true;
        Training there(setup);
        here.run(3);
        there.run(3);
        CHECK(same_bits(here.all("grad"), there.all("grad")));
        CHECK(same_bits(here.all("master"), there.all("master")));
        const auto pinned = [](const Training& each) {
          return each.engine.plan().pool_bytes[static_cast<std::size_t>(Pool::pinned)];
        };
        CHECK((pinned(there) > pinned(here)) == (layers == 5));
      }
    }
  }
}

TEST_CASE("frozen parameters stay, all others train as if nothing were frozen") {
  for (const Shape shape : {Shape::mpt, Shape::llama}) {
    for (const Precision precision : {Precision::fp32, Precision::amp_bf16}) {
      Setup setup = small_setup();
      if (shape == Shape::llama) make_llama(setup.memory.shape);
      setup.memory.precision = precision;
      Training whole(setup);
      whole.run(1);
      setup.memory.frozen = {"root.*", "block.1.*", "block.2.qkv.*", "*.norm2.gain"};
      Training some(setup);
      const auto values = [](Training& training, const Tensor& tensor) {
        return training.engine.read(tensor);
      };
      // A frozen matrix keeps the weights that a trained one begins with.
      const Memory& memory = some.engine.memory();
      const auto frozen_bytes = [&] {
        const Tensor flat = memory.flat(2, "frozen");
        const auto* begin = static_cast<const std::byte*>(flat.data);
        return std::vector<std::byte>(begin, begin + flat.cols * bytes_of(flat.dtype));
      };
      const std::vector<std::byte> before = frozen_bytes();
      CHECK(std::ranges::count(before, std::byte{0}) < std::ssize(before) / 2);
      some.run(1);
      CHECK(frozen_bytes() == before);
      CHECK(some.samples[0].loss == whole.samples[0].loss);
      for (const std::int64_t unit : {1, 3}) {
        for (const char* name : {"up.weight", "down.weight", "norm1.gain", "out.weight"}) {
          const Tensor gradient = memory.gradient(unit, name);
          REQUIRE(gradient);
          CHECK(same_bits(values(some, gradient),
                          values(whole, whole.engine.memory().gradient(unit, name))));
        }
        CHECK_FALSE(memory.gradient(unit, "norm2.gain"));
      }
      CHECK_FALSE(memory.gradient(0, "token_table"));
      CHECK_FALSE(memory.gradient(2, "up.weight"));
      // Gradients of frozen matrices are not computed.
      CHECK(some.engine.step_cost().executed < whole.engine.step_cost().executed);
      CHECK(some.engine.plan().total_bytes() < whole.engine.plan().total_bytes());
      CHECK(some.samples[0].grad_norm < whole.samples[0].grad_norm);
      setup.memory.frozen = {"block.7.*"};
      CHECK_THROWS_AS(Training{setup}, Error);  // fits no parameter
    }
  }
}

TEST_CASE("checkpointing by name is the mask of all blocks") {
  using memory::Keep;
  using memory::recompute_mask;
  CHECK(recompute_mask(Checkpointing::none, 2) == memory::RecomputeMask{Keep::all, Keep::all});
  CHECK(recompute_mask(Checkpointing::full, 1) == memory::RecomputeMask{Keep::input});
  CHECK(recompute_mask(Checkpointing::selective, 1) == memory::RecomputeMask{Keep::selective});
}

TEST_CASE("48 sequences by 11 equal one batch of 48") {
  Setup setup = small_setup();
  setup.memory.seq_len = 9;
  setup.memory.device_batch = 48;
  setup.memory.microbatch = 48;
  CHECK(memory::microbatches(48, 11) == std::vector<std::int64_t>{11, 11, 11, 11, 4});
  Training whole(setup);
  setup.memory.microbatch = 11;
  Training parts(setup);
  CHECK(parts.engine.microbatches() == 5);
  whole.run(1);
  parts.run(1);
  CHECK(parts.samples[0].loss == doctest::Approx(whole.samples[0].loss).epsilon(1e-6));
  CHECK(parts.samples[0].grad_norm == doctest::Approx(whole.samples[0].grad_norm).epsilon(1e-6));
  CHECK(relative_error(parts.all("grad"), whole.all("grad")) < 1e-6);
  // The whole batch must differ from one without its last sequences, otherwise the test could not
  // see them missing.
  setup.memory.device_batch = 44;
  Training fewer(setup);
  fewer.run(1);
  CHECK(relative_error(fewer.all("grad"), whole.all("grad")) > 1e-2);
}

TEST_CASE("nothing is allocated after the device is sealed") {
  for (const Checkpointing checkpointing :
       {Checkpointing::none, Checkpointing::selective, Checkpointing::full}) {
    for (const Precision precision : {Precision::fp32, Precision::amp_bf16}) {
      Setup setup = small_setup();
      setup.memory.checkpointing = checkpointing;
      setup.memory.precision = precision;
      setup.memory.offload = checkpointing != Checkpointing::none;
      if (precision == Precision::amp_bf16) setup.memory.mixed_precision = MixedPrecision::full;
      Training training(setup, 2);
      training.samples.reserve(6);
      const std::function<void(const runlog::StepSample&)> nothing = [](const auto&) {};
      const long before = allocations();
      train(training.engine, 6, 0, training.stop, training.samples, nothing);
      CHECK(allocations() - before == 0);
      CHECK(training.samples.size() == 6);
    }
  }
  const long before = allocations();
  const std::vector<int> seen(100);
  CHECK(allocations() - before >= 1);
  CHECK(seen.size() == 100);
}

TEST_CASE("the loss begins near that of guessing and falls on data that repeats") {
  Setup setup = small_setup();
  setup.recipe.warmup_steps = 1;
  setup.recipe.peak_lr = 1e-2;
  Training training(setup, [](std::int64_t, std::int64_t row, std::span<std::int32_t> tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<std::int32_t>((i * 7 + static_cast<std::size_t>(row)) % 201);
  });
  training.run(60);
  const double guess = std::log(201.0);
  CHECK(training.samples.front().loss > guess - 1);
  CHECK(training.samples.front().loss < guess + 2.5);
  CHECK(training.samples.back().loss < 1);
}

TEST_CASE("a loss that is not finite ends the training at its step and changes no parameter") {
  Setup setup = small_setup();
  Training training(setup);
  std::vector<float> bias = training.engine.read(training.engine.memory().master(1, "up.bias"));
  bias[0] = std::numeric_limits<float>::infinity();
  training.engine.write(training.engine.memory().master(1, "up.bias"), bias);
  const std::vector<float> before = training.all("m");
  const LoopEnd end = training.run(6);
  CHECK(end.kind == LoopEnd::Kind::not_finite);
  CHECK(end.step == 1);
  CHECK(end.what.find("at step 1") != std::string::npos);
  CHECK(training.samples.size() == 1);
  CHECK(training.samples[0].skipped);
  CHECK(same_bits(training.all("m"), before));
}

TEST_CASE("a stop ends the training after the microbatch, with the samples of whole steps") {
  Setup setup = small_setup();
  Training training(setup, [&](std::int64_t step, std::int64_t, std::span<std::int32_t> tokens) {
    std::fill(tokens.begin(), tokens.end(), static_cast<std::int32_t>(step));
  });
  training.samples.reserve(9);
  const LoopEnd end = train(training.engine, 9, 0, training.stop, training.samples,
                            [&](const runlog::StepSample& sample) {
                              if (sample.step == 3) training.stop = 15;
                            });
  CHECK(end.kind == LoopEnd::Kind::interrupted);
  CHECK(end.step == 4);  // issued before the third was taken
  CHECK(training.samples.size() == 4);
}

TEST_CASE("a model that the machine cannot hold is refused before anything is allocated") {
  Setup setup = small_setup();
  setup.memory.shape.d_model = 1 << 14;
  setup.memory.shape.n_layers = 200;
  setup.memory.shape.head_dim = 1 << 13;
  setup.memory.shape.ffn = 1 << 16;
  try {
    Training training(setup);
    FAIL("was not refused");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::host_oom);
    CHECK(std::string(error.what()).find("GiB are needed") != std::string::npos);
  }
}

TEST_CASE("step seconds add up to the span of the loop") {
  Training training(small_setup());
  training.run(5);
  double sum = 0;
  for (const runlog::StepSample& sample : training.samples) {
    CHECK(sample.seconds > 0);
    CHECK(sample.data_wait_s <= sample.seconds);
    sum += sample.seconds;
  }
  // Events: start is 4, step ends rotate over 0 to 3; the fifth step's is 1.
  CHECK(sum == doctest::Approx(training.device->seconds(4, 1)));
}
