// SPDX-License-Identifier: Apache-2.0
// Small trainings for tests.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/train/engine.h"
#include "trainer/train/loop.h"

namespace tessera::trainer::test {

inline model::Shape small_shape() {
  return {.d_model = 32,
          .n_layers = 3,
          .n_heads = 2,
          .n_kv_heads = 2,
          .head_dim = 16,
          .ffn = 96,
          .vocab = 201};
}

enum class Shape : std::uint8_t { mpt, llama };

// Makes a shape with RMSNorm, rotary positions, SwiGLU, one kv head and an untied head.
inline void make_llama(model::Shape& shape) {
  shape.norm = model::Norm::rmsnorm;
  shape.positions = model::Positions::rope;
  shape.activation = model::Activation::swiglu;
  shape.biases = {false, false, false, false};
  shape.n_kv_heads = 1;
  shape.tied = false;
}

inline Setup small_setup() {
  return {.memory = {.shape = small_shape(),
                     .seq_len = 19,
                     .device_batch = 5,
                     .microbatch = 2,
                     .precision = Precision::fp32,
                     .checkpointing = Checkpointing::none},
          .recipe = {.peak_lr = 3e-3},
          .seed = 17};
}

// A device with an engine on it, and the results of its steps.
struct Training {
  explicit Training(const Setup& setup, int threads = 1)
      : Training(setup, synthetic_tokens(setup.seed, setup.memory.shape.vocab), threads) {}
  Training(const Setup& setup, TokenSource source, int threads = 1)
      : Training(on(threads, setup), std::move(source), cpu_device(threads)) {}
  Training(const Setup& setup, TokenSource source, std::unique_ptr<Device> on_device)
      : device(std::move(on_device)), engine(*device, *communicator, setup, std::move(source)) {}
  // Returns the set-up, planned for so many threads.
  static Setup on(int threads, Setup setup) {
    setup.memory.target.threads = threads;
    return setup;
  }

  // Trains; call it once.
  LoopEnd run(std::int64_t steps) {
    samples.reserve(static_cast<std::size_t>(steps));
    return train(engine, steps, 0, stop, samples, [](const runlog::StepSample&) {});
  }

  std::vector<float> all(const char* kind) {
    std::vector<float> values;
    for (std::size_t unit = 0; unit < engine.memory().units().size(); ++unit) {
      if (!memory::is_trained(engine.memory().units()[unit])) continue;
      const std::vector<float> part =
          engine.read(engine.memory().flat(static_cast<std::int64_t>(unit), kind));
      values.insert(values.end(), part.begin(), part.end());
    }
    return values;
  }

  std::atomic<int> stop{0};
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> communicator = single_communicator();
  Engine engine;
  std::vector<runlog::StepSample> samples;
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Returns ||a - b|| / ||b||.
double relative_error(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace tessera::trainer::test
