// SPDX-License-Identifier: Apache-2.0
// Steps of a model, against the CPU's and against themselves.
#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/selftest/checks.h"
#include "trainer/train/engine.h"
#include "trainer/train/loop.h"

namespace tessera::trainer::selftest_checks {

namespace {

struct Trainee {
  std::string name;
  model::Shape shape;
  bool fused_gelu = false;
};

// MPT's 125m (yamls/models/125m.yaml).
model::Shape shape_125m() {
  return {.d_model = 768,
          .n_layers = 12,
          .n_heads = 12,
          .n_kv_heads = 12,
          .head_dim = 64,
          .ffn = 3072,
          .vocab = 50368};
}

// Models that a CPU trains in no time: MPT's and Llama's way, and products that do the GELU.
model::Shape small_shape() {
  return {.d_model = 128,
          .n_layers = 2,
          .n_heads = 2,
          .n_kv_heads = 2,
          .head_dim = 64,
          .ffn = 512,
          .vocab = 1024};
}
model::Shape small_llama() {
  model::Shape shape = small_shape();
  shape.n_heads = 4;
  shape.norm = model::Norm::rmsnorm;
  shape.positions = model::Positions::rope;
  shape.activation = model::Activation::swiglu;
  shape.biases = {.qkv = false, .out = false, .mlp = false, .norm = false};
  shape.tied = false;
  return shape;
}
model::Shape small_gelu() {
  model::Shape shape = small_shape();
  shape.activation = model::Activation::gelu_tanh;
  return shape;
}

Trainee first_trainee(const SelftestOptions& options) {
  if (options.small || !options.gpu) return {.name = "small", .shape = small_shape()};
  return {.name = "125m", .shape = shape_125m()};
}
std::vector<Trainee> trainees(const SelftestOptions& options) {
  return {first_trainee(options),
          {.name = "llama", .shape = small_llama()},
          {.name = "fused gelu", .shape = small_gelu(), .fused_gelu = true}};
}

Setup setup_of(const SelftestOptions& options, const Trainee& trainee, Precision precision,
               bool on_gpu, Way way) {
  Setup setup;
  setup.memory.shape = trainee.shape;
  setup.memory.fused_gelu = trainee.fused_gelu;
  setup.memory.seq_len = 256;
  setup.memory.device_batch = 4;
  setup.memory.microbatch = 2;
  setup.memory.precision = precision;
  setup.memory.target = {
      .is_gpu = on_gpu, .deterministic = way == Way::same_bits, .threads = options.threads};
  setup.recipe.peak_lr = 1e-3;
  return setup;
}

constexpr std::int64_t kSteps = 3;

struct Trained {
  std::vector<runlog::StepSample> samples;
  std::vector<float> masters;  // of the first block
};

Trained train_on(Device& device, const Setup& setup) {
  const auto communicator = single_communicator();
  Engine engine(device, *communicator, setup,
                synthetic_tokens(setup.seed, setup.memory.shape.vocab));
  const std::atomic<int> stop{0};
  Trained trained;
  trained.samples.reserve(kSteps);
  train(engine, kSteps, 0, stop, trained.samples, {});
  trained.masters = engine.read(engine.memory().flat(1, "master"));
  return trained;
}

double relative(double value, double expected) {
  return std::abs(value - expected) / std::abs(expected);
}

void check_one(const SelftestOptions& options, const Trainee& trainee, Precision precision,
               Report& report) {
  const auto device = device_under_test(options, Way::benchmark);
  const Trained here =
      train_on(*device, setup_of(options, trainee, precision, options.gpu, Way::benchmark));
  const auto cpu = cpu_device(options.threads);
  const Trained there =
      train_on(*cpu, setup_of(options, trainee, precision, false, Way::benchmark));
  // Loss and norm agree as sums in f32 do; bf16 rounds at the same points, in other orders.
  const double allowed_loss = is_f32(precision) ? 1e-5 : 1e-3;
  const double allowed_norm = is_f32(precision) ? 1e-4 : 2e-2;
  const std::string name = fmt::format("{}, {}", trainee.name, to_text(precision));
  // A loss that is not finite ends a training.
  if (here.samples.size() != there.samples.size()) {
    report.check(name, false,
                 fmt::format("{} steps, then a loss or gradient that is not finite; {} on the CPU",
                             here.samples.size(), there.samples.size()));
    return;
  }
  for (std::size_t step = 0; step < there.samples.size(); ++step) {
    const std::string what = fmt::format("{} step {}", name, step + 1);
    report.check(what + " loss", relative(here.samples[step].loss, there.samples[step].loss),
                 allowed_loss);
    report.check(what + " gradient norm",
                 relative(here.samples[step].grad_norm, there.samples[step].grad_norm),
                 allowed_norm);
  }
}

}  // namespace

void check_training(const SelftestOptions& options, Report& report) {
  for (const Trainee& trainee : trainees(options)) {
    for (const Precision precision : {Precision::fp32, Precision::amp_bf16}) {
      try {
        check_one(options, trainee, precision, report);
      } catch (const std::exception& error) {
        // The next has a device of its own, but not another process: what ended the GPU's context
        // is told for each.
        report.check(fmt::format("{}, {}", trainee.name, to_text(precision)), false, error.what());
      }
    }
  }
}

namespace {

void check_twice(const SelftestOptions& options, Precision precision, Report& report) {
  const Setup setup =
      setup_of(options, first_trainee(options), precision, options.gpu, Way::same_bits);
  const auto first = train_on(*device_under_test(options, Way::same_bits), setup);
  const auto second = train_on(*device_under_test(options, Way::same_bits), setup);
  const std::string what = fmt::format("{}, {} steps twice", to_text(precision), kSteps);
  for (const Trained* trained : {&first, &second}) {
    if (trained->samples.size() == kSteps) continue;
    report.check(what, false, "a loss or gradient is not finite");
    return;
  }
  report.check(what + ": losses",
               first.samples.back().loss == second.samples.back().loss &&
                   first.samples.back().grad_norm == second.samples.back().grad_norm,
               "differ");
  report.check(what + ": parameters",
               first.masters.size() == second.masters.size() &&
                   std::memcmp(first.masters.data(), second.masters.data(),
                               first.masters.size() * sizeof(float)) == 0,
               "differ");
}

}  // namespace

void check_bits(const SelftestOptions& options, Report& report) {
  for (const Precision precision : {Precision::fp32, Precision::amp_bf16}) {
    try {
      check_twice(options, precision, report);
    } catch (const std::exception& error) {
      report.check(fmt::format("{}, {} steps twice", to_text(precision), kSteps), false,
                   error.what());
    }
  }
}

}  // namespace tessera::trainer::selftest_checks
