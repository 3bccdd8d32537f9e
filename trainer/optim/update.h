// SPDX-License-Identifier: Apache-2.0
// The end of a step as operations: norm of all gradients, clipping, AdamW unit by unit. The device
// decides whether the step is applied.
#pragma once

#include "trainer/model/memory.h"
#include "trainer/model/sequence.h"
#include "trainer/optim/recipe.h"

namespace tessera::trainer {

// Returns the operations in the order of the schedule. It takes betas and eps of `recipe`; the rest
// comes with StepInputs.
Sequence update_operations(const Memory& memory, const Recipe& recipe);

}  // namespace tessera::trainer
