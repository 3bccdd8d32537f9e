// SPDX-License-Identifier: Apache-2.0
// Small trainings on several ranks of one process, one thread each.
#pragma once

#include <exception>
#include <functional>
#include <thread>

#include "tests/trainer/comm/threads.h"
#include "tests/trainer/train/training.h"

namespace tessera::trainer::test {

// Calls `body(rank, communicator)` on a thread for each rank and waits. Rethrows the first
// exception of a rank.
inline void on_ranks(int ranks, const std::function<void(int, Communicator&)>& body) {
  auto communicators = threads_communicators(ranks);
  std::vector<std::exception_ptr> faults(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto index = static_cast<std::size_t>(rank);
      try {
        // It is destroyed while the exception is in flight, so that the other ranks are released.
        const std::unique_ptr<Communicator> own = std::move(communicators[index]);
        body(rank, *own);
      } catch (...) {
        faults[index] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& fault : faults) {
    if (fault) std::rethrow_exception(fault);
  }
}

// A rank's values after its steps.
struct RankResult {
  std::vector<float> masters, gradients, losses, norms;
};

inline std::vector<float> all_of(Engine& engine, const char* kind) {
  std::vector<float> values;
  for (std::size_t unit = 0; unit < engine.memory().units().size(); ++unit) {
    if (!memory::is_trained(engine.memory().units()[unit])) continue;
    const std::vector<float> part =
        engine.read(engine.memory().flat(static_cast<std::int64_t>(unit), kind));
    values.insert(values.end(), part.begin(), part.end());
  }
  return values;
}

inline RankResult train_rank(Engine& engine, std::int64_t steps) {
  RankResult result;
  const std::atomic<int> stop{0};
  std::vector<runlog::StepSample> samples;
  samples.reserve(static_cast<std::size_t>(steps));
  train(engine, steps, 0, stop, samples, [](const runlog::StepSample&) {});
  for (const runlog::StepSample& sample : samples) {
    result.losses.push_back(static_cast<float>(sample.loss));
    result.norms.push_back(static_cast<float>(sample.grad_norm));
  }
  result.masters = all_of(engine, "master");
  result.gradients = all_of(engine, "grad");
  return result;
}

// Trains. `setup` is that of the whole global batch; each rank takes its equal part.
inline std::vector<RankResult> train_ranks(Setup setup, int ranks, std::int64_t steps) {
  setup.memory.world = ranks;
  setup.memory.device_batch /= ranks;
  setup.memory.microbatch = std::min(setup.memory.microbatch, setup.memory.device_batch);
  std::vector<RankResult> results(static_cast<std::size_t>(ranks));
  on_ranks(ranks, [&](int rank, Communicator& communicator) {
    const std::unique_ptr<Device> device = cpu_device(1);
    Engine engine(*device, communicator, setup,
                  synthetic_tokens(setup.seed, setup.memory.shape.vocab));
    results[static_cast<std::size_t>(rank)] = train_rank(engine, steps);
  });
  return results;
}

}  // namespace tessera::trainer::test
