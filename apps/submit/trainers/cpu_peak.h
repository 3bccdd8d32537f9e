// SPDX-License-Identifier: Apache-2.0
// The CPU's peak, measured once by the trainer itself and handed over in the run specification.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>

#include "apps/submit/trainers/capabilities.h"
#include "lib/point/run_spec.h"

namespace tessera::submit {

// From the state directory, or measured now with `trainer --measure-peak --threads N`, 2 to 6
// seconds; `measuring` is called before that. Call it under the project's lock while no run is
// live. Nothing if the trainer cannot do it (then it measures itself in
// each run) or if somebody interrupts.
std::optional<sweep::Peak> cpu_peak(const std::filesystem::path& trainer, const Capabilities& can,
                                    int threads, const std::function<void()>& measuring,
                                    const std::atomic<bool>& interrupted);

// Takes a remembered peak away, so that it is measured anew. False if none is remembered.
bool forget_cpu_peak(const Capabilities& can, int threads);

}  // namespace tessera::submit
