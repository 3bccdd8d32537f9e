// How a model is trained: MPT's recipe (docs/architecture.md, "Recipe").
//
// AdamW with betas 0.9 and 0.95, eps 1e-8, decoupled weight decay (0); the norm of all gradients
// clipped at 1; the learning rate rises over 100 steps in a line to the model's own and falls by a
// cosine to a tenth of it at kTotalSteps. A benchmark is the begin of such a training.
#pragma once

#include <cstdint>

#include "trainer/device/ops.h"

namespace tessera::trainer {

struct Recipe {
  double peak_lr = 1e-4;
  double weight_decay = 0;
  double max_grad_norm = 1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  std::int64_t warmup_steps = 100;
  std::int64_t total_steps = 4800;  // what the recipe of 125m trains
  double final_fraction = 0.1;      // of peak_lr, from total_steps on
};

// Learning rate of `step`, from 1: step / warmup_steps of the peak, then the cosine.
double learning_rate(const Recipe& recipe, std::int64_t step);

// All that changes from step to step. `loss_tokens`: of the global batch.
StepInputs step_inputs(const Recipe& recipe, std::int64_t step, std::int64_t loss_tokens);

}  // namespace tessera::trainer
