// What each block keeps of its forward pass for its backward pass; what it does not keep it
// computes again. Pure values, on which schedule and plan rest.
#pragma once

#include <cstdint>
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

// Every block alike: none keeps all, selective and full as their names say.
RecomputeMask recompute_mask(Checkpointing checkpointing, std::int64_t blocks);

// Whether a block's tensor stays from forward to backward. `part`: the name of its buffer without
// that of the block: "norm1", "qkv", ... (plan.h).
bool keeps(Keep keep, std::string_view part);

}  // namespace tessera::memory
