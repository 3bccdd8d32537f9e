// SPDX-License-Identifier: Apache-2.0
// PyTorch's results for tiny decoders (tests/reference/make_fixtures.py).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/train/engine.h"

namespace tessera::trainer::test {

struct ReferenceParameter {
  std::int64_t unit = 0;
  std::string name;  // within its unit
  std::vector<float> begin, gradient, change;
};

struct Reference {
  std::string name;
  Setup setup;
  std::int64_t steps = 0;
  std::vector<double> losses, grad_norms;
  std::vector<ReferenceParameter> parameters;
  std::vector<std::int32_t> tokens;  // [steps, batch, seq + 1]

  TokenSource source() const;  // refers to this
};

std::vector<Reference> read_references();

// Gives the engine the reference's weights.
void set_weights(Engine& engine, const Reference& reference);

// Returns the rows of a parameter's tensor that the model uses, without padding.
std::vector<float> used_rows(Engine& engine, const Tensor& tensor, std::size_t elements);

}  // namespace tessera::trainer::test
