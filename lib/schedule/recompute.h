// SPDX-License-Identifier: Apache-2.0
// What each block keeps of its forward pass for its backward pass; what it does not keep it
// computes again. Pure values, on which schedule and plan rest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/model/settings.h"

namespace tessera::memory {

enum class Keep : std::uint8_t {
  all,        // nothing is computed again
  selective,  // all but what costs no matrix product: the norms' results and the activation's
  input,      // the residual stream before the block
};

// One mask a block, in forward order.
using RecomputeMask = std::vector<Keep>;

// Which blocks a checkpointing is for, in the words of sweep files: "all", "first-8", "last-8", or
// "every-2", the first of each two.
inline constexpr std::string_view kAllBlocks = "all";

// Blocks that it is for as `checkpointing` says (none keeps all, selective and full as their names
// say), the others keep all. Error(input) for other words.
RecomputeMask recompute_mask(Checkpointing checkpointing, std::int64_t blocks,
                             std::string_view which = kAllBlocks);

// "all" where that gives the same mask, else `which` in its usual form.
std::string usual_blocks(Checkpointing checkpointing, std::int64_t blocks, std::string_view which);

// Whether a block's tensor stays from forward to backward. `part`: the name of its buffer without
// that of the block: "x" (the residual stream before it), "norm1", "qkv", ... (plan.h).
bool keeps(Keep keep, std::string_view part);

}  // namespace tessera::memory
