// SPDX-License-Identifier: Apache-2.0
// Room for what operations and libraries need besides their tensors: budgets, planned like any
// other buffer. An algorithm that needs more is no candidate; a device that cannot do with it says
// so before step one.
#pragma once

#include <cstdint>

#include "lib/schedule/config.h"

namespace tessera::memory {

// Workspace that cuBLASLt's algorithms may use on a GPU, and beside it the scratch of unfused
// attention, which takes more only if it cannot do with this.
inline constexpr std::int64_t kGemmWorkspaceBytes = std::int64_t{64} << 20;
inline constexpr std::int64_t kUnfusedAttentionBytes = std::int64_t{64} << 20;

// What varies from step to step, and what stays on the device (StepInputs, StepState in
// trainer/device/ops.h): at most this much each.
inline constexpr std::int64_t kStepScalarsBytes = 256;

// Bytes.
struct Scratch {
  std::int64_t workspace = 0;      // of the most demanding operation
  std::int64_t partials = 0;       // of the largest bias or norm gradient
  std::int64_t norm_partials = 0;  // squared norms of the gradients that this rank updates
};

Scratch scratch(const Config& config);

}  // namespace tessera::memory
