// What moves instead of computing: what blocks keep to host memory and back, and the sums of
// gradients over the ranks. Each function emits the work of one action of the schedule.
#pragma once

#include "trainer/model/pass.h"

namespace tessera::trainer {

// Of block `layer`: what it keeps, of this microbatch's rows only.
void offload_block(const Pass& pass, std::int64_t layer);
void fetch_block(const Pass& pass, std::int64_t layer);

// The unit's gradient summed over the ranks, where it adds up. Under PURE it is rounded to the
// compute dtype once before it travels, and the sum once after. With the root's goes the loss.
void reduce_unit(const Pass& pass);

}  // namespace tessera::trainer
