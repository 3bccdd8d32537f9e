// SPDX-License-Identifier: Apache-2.0
// A profile of a step's time: each operation of a few steps after the measured ones is timed.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/runlog/facts.h"
#include "lib/runlog/footer.h"
#include "trainer/device/profiling.h"
#include "trainer/train/engine.h"

namespace tessera::trainer {

inline constexpr std::int64_t kProfiledSteps = 3;

struct Profile {
  std::int64_t steps = 0;
  // Totals of all steps together.
  double seconds = 0;      // from end to end of the steps
  double data_wait_s = 0;  // the host's, before the device had the data
  std::vector<OpTotal> operations;
};

// Trains kProfiledSteps + 1 steps after the last one, `last`; the first of them only marks where
// the others' time begins. `device` is what `engine` runs on. Nothing if `stop` came first.
std::optional<Profile> profile_steps(Engine& engine, ProfilingDevice& device, std::int64_t last,
                                     const std::atomic<int>& stop);

runlog::Budget budget(const Profile& profile);

// Returns records of kind `profile`, each with as many operations as fit: means of a step.
std::vector<runlog::Json> profile_fields(const Profile& profile);

// Returns a table for people: a line for each class and each operation, means of a step.
std::string profile_table(const Profile& profile);

}  // namespace tessera::trainer
