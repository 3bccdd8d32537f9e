// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/recipe.h"

#include <doctest/doctest.h>

#include <cmath>

using namespace tessera::trainer;

TEST_CASE("the learning rate rises over 100 steps and falls by a cosine to a tenth") {
  const Recipe recipe{.peak_lr = 6e-4};
  CHECK(learning_rate(recipe, 1) == doctest::Approx(6e-6));
  CHECK(learning_rate(recipe, 50) == doctest::Approx(3e-4));
  CHECK(learning_rate(recipe, 100) == doctest::Approx(6e-4));
  CHECK(learning_rate(recipe, 2450) == doctest::Approx(6e-4 * 0.55));
  CHECK(learning_rate(recipe, 4800) == doctest::Approx(6e-5));
  CHECK(learning_rate(recipe, 1000000) == doctest::Approx(6e-5));
}

TEST_CASE("what a step is told") {
  const StepInputs inputs = step_inputs({.peak_lr = 1e-3}, 3, 4096);
  CHECK(inputs.step == 3);
  CHECK(inputs.lr == doctest::Approx(3e-5));
  CHECK(inputs.bias1 == doctest::Approx(1 - std::pow(0.9, 3)));
  CHECK(inputs.bias2 == doctest::Approx(1 - std::pow(0.95, 3)));
  CHECK(inputs.inv_tokens == doctest::Approx(1.0 / 4096));
  CHECK(inputs.max_grad_norm == 1);
  CHECK(inputs.weight_decay == 0);
}
