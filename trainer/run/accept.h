// SPDX-License-Identifier: Apache-2.0
// The run specifications that this engine accepts.
#pragma once

#include <string>
#include <vector>

#include "lib/point/run_spec.h"
#include "trainer/launch/place.h"
#include "trainer/train/engine.h"

namespace tessera::trainer {

// Refuses by name every setting that the engine does not act on (Error(unsupported), where =
// "point.<field>", with the reason), and what contradicts itself or the started ranks
// (Error(spec)). Settings without effect on one rank pass; the records then say what ran (sharding
// NO_SHARD).
void accept(const sweep::RunSpec& spec, const Place& place = {});

// Throws Error(wrong_device) unless the specification expects `device`.
void expect_device(const sweep::RunSpec& spec, const std::string& device);

// Returns the set-up of an accepted specification whose plan may take `capacity_bytes`. An
// automatic microbatch that submit has not resolved becomes the largest one that fits;
// Error(host_oom; oom on a GPU) if none does.
Setup setup_of(const sweep::RunSpec& spec, std::int64_t capacity_bytes);
// Returns the threads asked for, otherwise the number that this process may use.
int threads_of(const sweep::Point& point);

}  // namespace tessera::trainer
