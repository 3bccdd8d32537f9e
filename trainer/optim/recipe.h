// SPDX-License-Identifier: Apache-2.0
// How a model is trained: MPT's recipe.
//
// AdamW with betas 0.9 and 0.95, eps 1e-8 and decoupled weight decay (0). The norm of all gradients
// is clipped at 1. The learning rate rises linearly over 100 steps to the model's own and falls as
// a cosine to a tenth of it at kTotalSteps. A benchmark runs the beginning of such a training.
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
  std::int64_t total_steps = 4800;  // as in the recipe of 125m
  double final_fraction = 0.1;      // of peak_lr, from total_steps on
};

// Returns the learning rate of `step`, from 1: linear warm-up to the peak, then the cosine.
double learning_rate(const Recipe& recipe, std::int64_t step);

// Returns everything that changes from step to step. `loss_tokens`: of the global batch.
StepInputs step_inputs(const Recipe& recipe, std::int64_t step, std::int64_t loss_tokens);

}  // namespace tessera::trainer
