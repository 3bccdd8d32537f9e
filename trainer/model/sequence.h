// A part of the step as a list of operations, in the order of issue.
#pragma once

#include <vector>

#include "trainer/device/device.h"

namespace tessera::trainer {

struct Issue {
  Op op;
  std::int16_t unit = 0;
  Phase phase = Phase::forward;
  int tick = 0;  // of the schedule with one microbatch: when the memory plan thinks it runs
};

using Sequence = std::vector<Issue>;

// Hands every operation to the device.
inline void run(Device& device, const Sequence& sequence, std::int64_t microbatch) {
  for (const Issue& issue : sequence) {
    device.run(Stream::compute, issue.op,
               {.unit = issue.unit,
                .microbatch = static_cast<std::int16_t>(microbatch),
                .phase = issue.phase});
  }
}

}  // namespace tessera::trainer
