// Steps of a model, against the CPU's and against themselves.
#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/selftest/checks.h"
#include "trainer/train/engine.h"
#include "trainer/train/loop.h"

namespace tessera::trainer::selftest_checks {

namespace {

// MPT's 125m (yamls/models/125m.yaml), and a model that a CPU trains in no time.
model::Shape shape_125m() {
  return {.d_model = 768,
          .n_layers = 12,
          .n_heads = 12,
          .n_kv_heads = 12,
          .head_dim = 64,
          .ffn = 3072,
          .vocab = 50368};
}
model::Shape small_shape() {
  return {.d_model = 128,
          .n_layers = 2,
          .n_heads = 2,
          .n_kv_heads = 2,
          .head_dim = 64,
          .ffn = 512,
          .vocab = 1024};
}

Setup setup_of(const SelftestOptions& options, Precision precision, bool on_gpu, Way way) {
  Setup setup;
  setup.memory.shape = options.small || !options.gpu ? small_shape() : shape_125m();
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

}  // namespace

void check_training(const SelftestOptions& options, Report& report) {
  for (const Precision precision : {Precision::fp32, Precision::amp_bf16}) {
    const auto device = device_under_test(options, Way::benchmark);
    const Trained here =
        train_on(*device, setup_of(options, precision, options.gpu, Way::benchmark));
    const auto cpu = cpu_device(options.threads);
    const Trained there = train_on(*cpu, setup_of(options, precision, false, Way::benchmark));
    // Loss and norm agree as sums in f32 do; bf16 rounds at the same points, in other orders.
    const double allowed_loss = is_f32(precision) ? 1e-5 : 1e-3;
    const double allowed_norm = is_f32(precision) ? 1e-4 : 2e-2;
    for (std::size_t step = 0; step < there.samples.size(); ++step) {
      const std::string what = fmt::format("{} step {}", to_text(precision), step + 1);
      report.check(what + " loss", relative(here.samples[step].loss, there.samples[step].loss),
                   allowed_loss);
      report.check(what + " gradient norm",
                   relative(here.samples[step].grad_norm, there.samples[step].grad_norm),
                   allowed_norm);
    }
  }
}

void check_bits(const SelftestOptions& options, Report& report) {
  for (const Precision precision : {Precision::fp32, Precision::amp_bf16}) {
    const Setup setup = setup_of(options, precision, options.gpu, Way::same_bits);
    const auto first = train_on(*device_under_test(options, Way::same_bits), setup);
    const auto second = train_on(*device_under_test(options, Way::same_bits), setup);
    const std::string what = fmt::format("{}, {} steps twice", to_text(precision), kSteps);
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
}

}  // namespace tessera::trainer::selftest_checks
