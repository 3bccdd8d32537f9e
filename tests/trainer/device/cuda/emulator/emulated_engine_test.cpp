// SPDX-License-Identifier: Apache-2.0
// Whole training runs on emulated kernels, against the CPU device.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/trainer/device/cuda/emulator/emulated_device.h"
#include "tests/trainer/train/training.h"
#include "trainer/device/cuda/emulator/emulator.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

constexpr std::int64_t kSteps = 2;

struct Model {
  std::string name;
  model::Shape shape;
  bool fused_gelu = false;
};

// Rows are whole vectors, except those of the second model's MLP.
std::vector<Model> models() {
  const model::Shape mpt = {.d_model = 32,
                            .n_layers = 2,
                            .n_heads = 2,
                            .n_kv_heads = 2,
                            .head_dim = 16,
                            .ffn = 96,
                            .vocab = 201};
  model::Shape alibi = mpt;
  alibi.positions = model::Positions::alibi;
  alibi.biases = {false, false, false, false};
  model::Shape llama = alibi;
  llama.n_heads = 4;
  llama.n_kv_heads = 2;
  llama.ffn = 43;
  llama.norm = model::Norm::rmsnorm;
  llama.positions = model::Positions::rope;
  llama.activation = model::Activation::swiglu;
  llama.tied = false;
  model::Shape gpt2 = mpt;
  gpt2.activation = model::Activation::gelu_tanh;
  return {{"MPT", mpt}, {"Llama", llama}, {"ALiBi", alibi}, {"GPT-2, fused", gpt2, true}};
}

Setup setup_of(const Model& model, Precision precision) {
  Setup setup = small_setup();
  setup.memory.shape = model.shape;
  setup.memory.seq_len = 24;
  setup.memory.device_batch = 3;
  setup.memory.microbatch = 2;
  setup.memory.precision = precision;
  setup.memory.fused_gelu = model.fused_gelu;
  setup.recipe.warmup_steps = 1;
  setup.recipe.weight_decay = 0.1;
  return setup;
}

TokenSource tokens_of(const Setup& setup) {
  return synthetic_tokens(setup.seed, setup.memory.shape.vocab);
}

std::unique_ptr<Training> emulated(Setup setup, int multiprocessors = 3,
                                   AttentionWorkspace attention = AttentionWorkspace::all) {
  setup.memory.target.is_gpu = true;
  return std::make_unique<Training>(setup, tokens_of(setup),
                                    emulated_device(multiprocessors, attention));
}

// Flat buffers by unit, without the bias of keys: it shifts all scores of a query alike, so its
// true gradient is 0, and what AdamW makes of the noise means nothing.
std::vector<std::vector<float>> by_unit(Engine& engine, const char* kind) {
  std::vector<std::vector<float>> units;
  const model::Shape& shape = engine.config().shape;
  for (std::size_t unit = 0; unit < engine.memory().units().size(); ++unit) {
    const auto number = static_cast<std::int64_t>(unit);
    const Tensor flat = engine.memory().flat(number, kind);
    units.push_back(engine.read(flat));
    const Tensor bias = kind == std::string("grad") ? engine.memory().gradient(number, "qkv.bias")
                                                    : engine.memory().master(number, "qkv.bias");
    if (!bias) continue;
    const auto first = units.back().begin() +
                       (static_cast<float*>(bias.data) - static_cast<float*>(flat.data)) +
                       shape.n_heads * shape.head_dim;
    std::fill(first, first + shape.n_kv_heads * shape.head_dim, 0.0F);
  }
  return units;
}

// The result of kSteps steps.
struct Course {
  std::vector<double> losses, norms;
  std::vector<std::vector<float>> begin, gradients, change;  // gradients of the first step
};

Course course_of(Training& training) {
  Course course;
  course.begin = by_unit(training.engine, "master");
  training.engine.start();
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    REQUIRE(training.engine.issue(step, training.stop));
    const StepResult result = training.engine.result(step);
    CHECK(result.finite);
    course.losses.push_back(static_cast<double>(result.loss));
    course.norms.push_back(static_cast<double>(result.grad_norm));
    if (step == 1) course.gradients = by_unit(training.engine, "grad");
  }
  course.change = by_unit(training.engine, "master");
  for (std::size_t unit = 0; unit < course.change.size(); ++unit) {
    for (std::size_t i = 0; i < course.change[unit].size(); ++i)
      course.change[unit][i] -= course.begin[unit][i];
  }
  return course;
}

// The distance between two courses: the largest relative differences of tensors by unit.
struct Distance {
  double losses = 0, norms = 0, gradients = 0, change = 0;
};

Distance distance_of(const Course& course, const Course& from) {
  Distance d;
  for (std::size_t step = 0; step < kSteps; ++step) {
    d.losses = std::max(d.losses, std::abs(course.losses[step] / from.losses[step] - 1));
    d.norms = std::max(d.norms, std::abs(course.norms[step] / from.norms[step] - 1));
  }
  for (std::size_t unit = 0; unit < from.change.size(); ++unit) {
    d.gradients =
        std::max(d.gradients, relative_error(course.gradients[unit], from.gradients[unit]));
    d.change = std::max(d.change, relative_error(course.change[unit], from.change[unit]));
  }
  return d;
}

}  // namespace

TEST_CASE("emulated kernels train as the CPU device does") {
  for (const Model& model : models()) {
    CAPTURE(model.name);
    Training in_f32(setup_of(model, Precision::fp32));
    const Course exact = course_of(in_f32);
    for (const auto& [precision, mixed] : {std::pair{Precision::fp32, MixedPrecision::default_},
                                           {Precision::amp_bf16, MixedPrecision::default_},
                                           {Precision::amp_bf16, MixedPrecision::full}}) {
      Setup setup = setup_of(model, precision);
      setup.memory.mixed_precision = mixed;
      Training cpu(setup);
      const Course expected = course_of(cpu);
      const Course course = course_of(*emulated(setup));
      CHECK(course.begin == expected.begin);
      const Distance d = distance_of(course, expected);
      MESSAGE(model.name, " ", to_text(precision), " ", to_text(mixed), ": loss curve ", d.losses,
              ", gradient norms ", d.norms, ", gradients ", d.gradients, ", change of parameters ",
              d.change);
      CHECK(d.change > 0);
      // The CPU device is held to the same bounds against PyTorch (train/reference_test.cpp).
      if (precision == Precision::fp32) {
        CHECK(d.losses <= 1e-6);
        CHECK(d.norms <= 1e-5);
        CHECK(d.gradients <= 1e-5);
        CHECK(d.change <= 3e-4);
        continue;
      }
      CHECK(d.losses <= 2e-3);
      CHECK(d.norms <= 5e-2);
      CHECK(d.gradients <= 5e-2);
      // AdamW's first steps turn small errors of small gradients into large ones on either device,
      // so the emulated kernels may be no further from f32 than the CPU device.
      const Distance ours = distance_of(course, exact);
      const Distance cpus = distance_of(expected, exact);
      MESSAGE("from f32: change of parameters ", ours.change, ", of the CPU device's ",
              cpus.change);
      CHECK(ours.gradients <= 1.25 * cpus.gradients);
      CHECK(ours.change <= 1.25 * cpus.change);
    }
  }
}

TEST_CASE("emulated trainings have the same bits in every order of threads and on any GPU") {
  using cuda::emulator::Order;
  for (const Model& model : models()) {
    CAPTURE(model.name);
    const Setup setup = setup_of(model, Precision::amp_bf16);
    const auto trained = [&](Order order, int multiprocessors) {
      cuda::emulator::options().order = order;
      const std::unique_ptr<Training> training = emulated(setup, multiprocessors);
      training->run(1);
      cuda::emulator::options().order = Order::forward;
      return training->all("master");
    };
    const std::vector<float> forward = trained(Order::forward, 3);
    CHECK(same_bits(trained(Order::reversed, 3), forward));
    CHECK(same_bits(trained(Order::random, 1), forward));
  }
}

TEST_CASE("what is computed again on emulated kernels has the bits of what was kept") {
  Setup setup = setup_of(models()[1], Precision::amp_bf16);
  const std::unique_ptr<Training> kept = emulated(setup);
  setup.memory.checkpointing = Checkpointing::full;
  const std::unique_ptr<Training> again = emulated(setup);
  for (Training* each : {kept.get(), again.get()}) each->run(1);
  CHECK(same_bits(kept->all("master"), again->all("master")));
}
