// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/recipe.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera::trainer {

double learning_rate(const Recipe& recipe, std::int64_t step) {
  if (step < recipe.warmup_steps) {
    return recipe.peak_lr * static_cast<double>(step) / static_cast<double>(recipe.warmup_steps);
  }
  const double progress =
      std::min(1.0, static_cast<double>(step - recipe.warmup_steps) /
                        static_cast<double>(recipe.total_steps - recipe.warmup_steps));
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return recipe.peak_lr * (recipe.final_fraction + (1 - recipe.final_fraction) * cosine);
}

StepInputs step_inputs(const Recipe& recipe, std::int64_t step, std::int64_t loss_tokens) {
  const auto exponent = static_cast<double>(step);
  return {.lr = static_cast<float>(learning_rate(recipe, step)),
          .weight_decay = static_cast<float>(recipe.weight_decay),
          .bias1 = static_cast<float>(1 - std::pow(recipe.beta1, exponent)),
          .bias2 = static_cast<float>(1 - std::pow(recipe.beta2, exponent)),
          .inv_tokens = static_cast<float>(1.0 / static_cast<double>(loss_tokens)),
          .max_grad_norm = static_cast<float>(recipe.max_grad_norm),
          .step = static_cast<std::int32_t>(step)};
}

}  // namespace tessera::trainer
