// SPDX-License-Identifier: Apache-2.0
// Flags that span a grid, as they were written, and the grid they mean.
#pragma once

#include <string>
#include <vector>

#include "lib/sweep/grid.h"

namespace tessera::apps {

struct GridFlags {
  using Texts = std::vector<std::string>;
  std::string sweep;
  Texts models;
  Texts seq_exponents;  // two, inclusive
  Texts seq_lens;
  Texts batch_exponents;  // two, inclusive, of the global batch in tokens
  Texts batch_sizes;      // in sequences
  Texts accum;
  Texts microbatch_sizes;
  Texts clusters;
  Texts gpu_types;
  Texts gpus;
  Texts precisions;
  Texts mixed_precisions;
  Texts sharding_strategies;
  Texts checkpointing;
  Texts axes;  // NAME=V,V
  Texts sets;  // KEY=V
  std::string where;
  std::string steps;
  std::string warmup;
  bool exact_steps = false;
  std::string cpu_offload;  // a boolean as llm-foundry writes it
};

// The sweep file with the flags that may stand beside it, or the product of the flags.
// Error(usage, input).
sweep::Grid grid_of_flags(const GridFlags& flags);

}  // namespace tessera::apps
