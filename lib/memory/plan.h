// SPDX-License-Identifier: Apache-2.0
// Every byte that training on one rank needs, placed before the first step.
//
// plan() is pure: the trainer makes one allocation a pool, of exactly pool_bytes, and nothing else;
// what predicts memory calls the same function, for any world, sharding and device. A buffer lives
// in the ticks [first, last] of the schedule with one microbatch (every microbatch of a step lives
// alike); buffers whose lives are disjoint may share bytes. What another stream than compute
// touches lives always, since only compute's work is in the order of the ticks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/names.h"
#include "lib/schedule/config.h"
#include "lib/schedule/schedule.h"

namespace tessera::memory {

// Buffers begin at multiples of this.
inline constexpr std::int64_t kBufferAlignment = 256;
// A step's batch and scalars go to the device from, and its results come back to, slots in turn.
inline constexpr int kSlots = 3;

// What a buffer is for, in tables for people.
enum class Use : std::uint8_t {
  weights,    // master and low-precision ones that this rank keeps
  gradients,  // where they add up over microbatches
  moments,    // AdamW's
  gathered,   // units' weights as gathered, and their gradients before reduction
  kept,       // activations from forward to backward
  working,    // activations and their gradients while they are computed
  logits,     //
  workspace,  // of libraries and reductions
  step,       // batch and scalars
};

struct Buffer {
  std::string name;
  Use use = Use::working;
  Pool pool = Pool::device;
  std::int64_t bytes = 0;
  std::int64_t offset = 0;  // in its pool
  int first = 0;
  int last = 0;
};

// When a block's tensor is written.
enum class Made : std::uint8_t { forward, again };

// The buffer of a block's tensor. What block `layer` keeps: its own "b3.qkv", or under offload that
// of its slot, "s1.qkv", and where it leaves the device "o3.qkv" in host memory. What it does not
// keep: "f.qkv" when made by the forward pass and "b.qkv" when made again, each of which all blocks
// that do not keep it use in turn.
std::string block_buffer(const RecomputeMask& mask, bool offload, std::int64_t layer,
                         std::string_view part, Made made);
std::string host_buffer(std::int64_t layer, std::string_view part);

// A tensor that each block writes, with its bytes for a microbatch of `sequences`.
struct BlockTensor {
  std::string_view part;  // "x", "norm1", "mean1", ...
  std::int64_t bytes = 0;
};
std::vector<BlockTensor> block_tensors(const Config& config, std::int64_t sequences);

struct Plan {
  std::vector<Buffer> buffers;
  std::array<std::int64_t, kPools> pool_bytes{};
  std::vector<Action> actions;                        // the schedule that the lives count in
  const Buffer& buffer(std::string_view name) const;  // Error(internal) if there is none
  // Bytes of the device's own memory: all pools but the pinned one.
  std::int64_t device_bytes() const;
  std::int64_t total_bytes() const { return pool_bytes[0] + pool_bytes[1] + pool_bytes[2]; }
};

Plan plan(const Config& config);

// Gives each buffer its offset, so that no two that live at once overlap; the same for the same
// input. Buffers that always live come first, then the larger ones. Returns the bytes of each pool.
std::array<std::int64_t, kPools> place(std::vector<Buffer>& buffers, int ticks);

}  // namespace tessera::memory

namespace tessera {
template <>
struct Names<memory::Use> {
  using enum memory::Use;
  static constexpr std::pair<memory::Use, std::string_view> table[] = {
      {weights, "weights"},         {gradients, "gradients"},   {moments, "moments"},
      {gathered, "gathered units"}, {kept, "kept activations"}, {working, "working activations"},
      {logits, "logits"},           {workspace, "workspaces"},  {step, "batch and scalars"}};
};
}  // namespace tessera
