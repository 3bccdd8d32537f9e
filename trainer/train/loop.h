// SPDX-License-Identifier: Apache-2.0
// The loop over steps, with what was measured of each.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lib/runlog/steps.h"
#include "trainer/train/engine.h"
#include "trainer/train/pace.h"

namespace tessera::trainer {

struct LoopEnd {
  enum class Kind : std::uint8_t {
    complete,
    interrupted,  // by `stop` of any rank; the samples are of all steps that ended
    not_finite,   // loss or gradient norm; the last sample is of that step, later ones are dropped
  };
  Kind kind = Kind::complete;
  std::int64_t step = 0;  // the last one that has a sample
  std::string what;       // of not_finite: "loss is nan at step 3"
  int signal = 0;         // of interrupted
};

// Callbacks of the loop; either may be empty.
struct LoopEvents {
  // Called before the first step that is known to be measured is issued. If the device executes at
  // issue, everything measured comes after it.
  std::function<void()> measuring;
  std::function<void(const runlog::StepSample&)> sample;  // each one as it is taken
};

// Trains as many steps as `pace` wants; several ranks end behind the same one. The host is at most
// two steps ahead: at the beginning of step N it waits for the end of N - 2 and takes its sample.
// `samples` must have room for pace.most_steps(), because the loop allocates nothing.
LoopEnd train(Engine& engine, Pace& pace, const std::atomic<int>& stop,
              std::vector<runlog::StepSample>& samples, const LoopEvents& events);

// Trains exactly steps 1 to `steps`; the first `warmup` of them are not measured.
LoopEnd train(Engine& engine, std::int64_t steps, std::int64_t warmup, const std::atomic<int>& stop,
              std::vector<runlog::StepSample>& samples,
              const std::function<void(const runlog::StepSample&)>& on_sample);

}  // namespace tessera::trainer
