// SPDX-License-Identifier: Apache-2.0
// Work that moves data instead of computing: offloading what blocks keep to host memory and
// fetching it back, and gradient sums over the ranks. Each function emits one action of the
// schedule.
#pragma once

#include "trainer/model/pass.h"

namespace tessera::trainer {

// Emits the copies of what block `layer` keeps, for this microbatch's rows only.
void offload_block(const Pass& pass, std::int64_t layer);
void fetch_block(const Pass& pass, std::int64_t layer);

// Emits the sum of the unit's gradient over the ranks. Under PURE the gradient is rounded to the
// compute dtype before it travels, and the sum is rounded after. The loss travels with the root's
// gradient.
void reduce_unit(const Pass& pass);

}  // namespace tessera::trainer
