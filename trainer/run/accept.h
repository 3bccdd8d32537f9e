// What this engine does of what a run specification asks for.
#pragma once

#include <string>
#include <vector>

#include "lib/point/run_spec.h"
#include "trainer/launch/place.h"
#include "trainer/train/engine.h"

namespace tessera::trainer {

// Refuses by name every setting that the engine does not act on (Error(unsupported), where =
// "point.<field>", with the reason), and what contradicts itself or the ranks that were started
// (Error(spec)). Settings without effect on one rank pass: records then say what ran (sharding
// NO_SHARD).
void accept(const sweep::RunSpec& spec, const Place& place = {});

// Error(wrong_device) unless `device` is one that the specification expects.
void expect_device(const sweep::RunSpec& spec, const std::string& device);

// What runs for an accepted specification where a plan may take `capacity_bytes`. An automatic
// microbatch that submit has not resolved becomes the largest that fits; Error(host_oom; oom on a
// GPU) if none does.
Setup setup_of(const sweep::RunSpec& spec, std::int64_t capacity_bytes);
int threads_of(const sweep::Point& point);  // as asked for, else all that this process may use

}  // namespace tessera::trainer
