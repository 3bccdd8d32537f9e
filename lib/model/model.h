// SPDX-License-Identifier: Apache-2.0
// A model as its file describes it: the shape, and what of the recipe a benchmark takes.
#pragma once

#include <cstdint>
#include <string>

#include "lib/model/shape.h"

namespace tessera::model {

struct Model {
  std::string name;
  Shape shape;
  std::int64_t max_seq_len = 0;  // of the recipe; a point's seq_len replaces it
  double lr = 1e-4;              // peak learning rate of the recipe, where the file says one
  std::string source;            // path of the file
};

}  // namespace tessera::model
