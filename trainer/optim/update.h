// The end of a step as operations: norm of all gradients, clipping, AdamW unit by unit. Whether the
// step is made is decided on the device.
#pragma once

#include "trainer/model/memory.h"
#include "trainer/model/sequence.h"
#include "trainer/optim/recipe.h"

namespace tessera::trainer {

// In the order of the schedule. `recipe`: betas and eps; the rest comes by StepInputs.
Sequence update_operations(const Memory& memory, const Recipe& recipe);

}  // namespace tessera::trainer
