// Every byte that training on one rank needs, placed before the first step.
//
// plan() is pure: the trainer makes one allocation a pool, of exactly pool_bytes, and nothing else;
// what predicts memory calls the same function. A buffer lives in the ticks [first, last] of the
// schedule with one microbatch (every microbatch of a step lives alike); buffers whose lives are
// disjoint may share bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/memory/schedule.h"
#include "lib/memory/units.h"

namespace tessera::memory {

// Buffers begin at multiples of this.
inline constexpr std::int64_t kBufferAlignment = 256;
// A step's batch and scalars go to the device from, and its results come back to, slots in turn.
inline constexpr int kSlots = 3;

struct Buffer {
  std::string name;
  Pool pool = Pool::device;
  std::int64_t bytes = 0;
  std::int64_t offset = 0;  // in its pool
  int first = 0;
  int last = 0;
};

// Scratch that the device's operations need, in bytes; the trainer asks the device.
struct Scratch {
  std::int64_t partials = 0;       // of the largest bias or norm gradient
  std::int64_t norm_partials = 0;  // squared norms of all units' gradients
  std::int64_t workspace = 0;      // of the most demanding operation
  std::int64_t step_inputs = 0;    // scalars copied in at each step
  std::int64_t step_state = 0;     // scalars that stay on the device
};

struct Config {
  model::Shape shape;
  std::int64_t seq_len = 0;
  std::int64_t device_batch = 0;  // sequences a step
  std::int64_t microbatch = 0;    // sequences at once, at most device_batch
  Precision precision = Precision::fp32;
  Checkpointing checkpointing = Checkpointing::none;
  RecomputeMask mask;  // one entry a block; empty: all blocks as `checkpointing` says
};

// Of the config's blocks.
RecomputeMask mask_of(const Config& config);

// When a block's tensor is written.
enum class Made : std::uint8_t { forward, again };

// The buffer of a block's tensor: its own "b3.qkv" if block `layer` keeps it. Else "f.qkv" when
// made by the forward pass and "b.qkv" when made again, each of which all blocks that do not keep
// it use in turn.
std::string block_buffer(const RecomputeMask& mask, std::int64_t layer, std::string_view part,
                         Made made);

// Sequences of each microbatch of a step: `microbatch` at a time, the last one what is left.
std::vector<std::int64_t> microbatches(std::int64_t device_batch, std::int64_t microbatch);

// What activations and the weights for compute are stored in.
DType compute_dtype(Precision precision);

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

struct Plan {
  std::vector<Buffer> buffers;
  std::array<std::int64_t, kPools> pool_bytes{};
  std::vector<Action> actions;                        // the schedule that the lives count in
  const Buffer& buffer(std::string_view name) const;  // Error(internal) if there is none
  std::int64_t total_bytes() const { return pool_bytes[0] + pool_bytes[1] + pool_bytes[2]; }
};

Plan plan(const Config& config, const Scratch& scratch);

// Gives each buffer its offset, so that no two that live at once overlap; the same for the same
// input. Buffers that always live come first, then the larger ones. Returns the bytes of each pool.
std::array<std::int64_t, kPools> place(std::vector<Buffer>& buffers, int ticks);

}  // namespace tessera::memory
