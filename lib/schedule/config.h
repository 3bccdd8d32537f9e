// SPDX-License-Identifier: Apache-2.0
// What a rank trains and how, as far as memory and the order of work depend on it. Pure values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/model/settings.h"
#include "lib/model/shape.h"
#include "lib/schedule/dtype.h"
#include "lib/schedule/recompute.h"

namespace tessera::memory {

// In elements, where each parameter of a flat buffer begins: 256 bytes of the smallest element
// (2 bytes).
inline constexpr std::int64_t kParameterAlignment = 128;

// The device whose libraries the plan makes room for (scratch.h).
struct Target {
  bool is_gpu = false;
  bool deterministic = false;  // GPU only: attention's backward pass takes another way
  int threads = 1;             // CPU only
};

struct Config {
  model::Shape shape;
  std::int64_t seq_len = 0;
  std::int64_t device_batch = 0;  // sequences a step
  std::int64_t microbatch = 0;    // sequences at once, at most device_batch
  Precision precision = Precision::fp32;
  MixedPrecision mixed_precision = MixedPrecision::default_;
  Checkpointing checkpointing = Checkpointing::none;
  RecomputeMask mask;       // one entry a block; empty: all blocks as `checkpointing` says
  bool offload = false;     // what blocks keep waits in host memory for the backward pass
  bool fused_gelu = false;  // products do the activation, if they can (fuses_gelu)
  std::int64_t world = 1;   // ranks, each with a device
  Sharding sharding = Sharding::no_shard;
  std::int64_t hybrid_group = 0;  // ranks of a shard group under HYBRID_SHARD
  // Parameters that are not trained: patterns on "block.3.qkv.weight", where * stands for anything.
  std::vector<std::string> frozen;
  Target target;
};

// Whether matrix products can do the activation of such a model as they store: libraries' GELU is
// the tanh form, and the rows of its argument must begin at multiples of so many elements.
inline constexpr std::int64_t kGeluRowElements = 8;
bool can_fuse_gelu(const model::Shape& shape);
// That, where it is asked for: what the engine does.
bool fuses_gelu(const Config& config);

// What each block of the config recomputes.
RecomputeMask mask_of(const Config& config);

// Ranks that a unit's state is split over: 1 with one rank or NO_SHARD, where every rank has all of
// it and nothing is gathered.
std::int64_t shard_ranks(const Config& config);

// Elements of a unit's flat buffer, and of one rank's part of it, with the gap at the end that
// makes the parts equal and each begin at a multiple of 256 bytes.
std::int64_t shard_elements(std::int64_t unit_elements, std::int64_t ranks);

// Sequences of each microbatch of a step: `microbatch` at a time, the last one what is left.
std::vector<std::int64_t> microbatches(std::int64_t device_batch, std::int64_t microbatch);
constexpr std::int64_t microbatch_count(std::int64_t device_batch, std::int64_t microbatch) {
  return (device_batch + microbatch - 1) / microbatch;
}
// A schedule has no more (of a step), and no more blocks.
inline constexpr std::int64_t kMostMicrobatches = 32'766;

// What activations and the weights for compute are stored in.
DType compute_dtype(Precision precision);

// What the residual stream and its gradient are stored in: as activations, but f32 under FULL.
DType residual_dtype(const Config& config);

// Rows of logits that exist at once: a multiple of 128, so that they take about 128 MiB, equal
// parts of the microbatch.
std::int64_t head_chunk_rows(const Config& config);

// Layout of one microbatch's batch data, all i32: tokens, targets, order [rows], starts [padded
// vocab + 1] (trainer/device/ops.h says what they hold). Offsets in elements.
struct BatchLayout {
  std::int64_t rows = 0;
  std::int64_t tokens = 0, targets = 0, order = 0, starts = 0;
  std::int64_t elements = 0;
};
BatchLayout batch_layout(const Config& config, std::int64_t sequences);

}  // namespace tessera::memory
