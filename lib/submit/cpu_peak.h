// The CPU's peak, measured once by the trainer itself and handed over in the run specification.
#pragma once

#include <filesystem>
#include <optional>

#include "lib/sweep/run_spec.h"

namespace tessera::submit {

// From the state directory, or measured now with `trainer --measure-peak --threads N` (about two
// seconds). Call it under the project's lock while no run is live. Nothing if the trainer cannot do
// it: then it measures itself in each run.
std::optional<sweep::Peak> cpu_peak(const std::filesystem::path& trainer, int threads);

}  // namespace tessera::submit
