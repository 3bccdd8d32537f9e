// SPDX-License-Identifier: Apache-2.0
// One optimizer step as a value: which part of the model is computed, gathered, reduced or moved
// when, on which stream, and what each waits for; the same on every rank.
//
// Pure and printable; trainer/ only executes it. An action's place in the list is its tick, which
// the lives of the memory plan count in. Actions of one stream run in the order of the list;
// between streams `after` is the only order.
//
//   * One rank, or NO_SHARD: compute reads the resident weights, gradients of all microbatches add
//     up in one place; with more ranks each unit's gradient is reduced once a step, after its last
//     backward.
//   * FULL_SHARD, HYBRID_SHARD: blocks take turns in two slots for gathered weights and two for
//     gradients; the next unit is gathered while one computes. SHARD_GRAD_OP: a slot a block, so
//     that weights are gathered once a step. The root and a head of its own have slots of their
//     own and are gathered once a step too: weights do not change before the update.
//   * Offload: what a block keeps lies in one of two slots in turn, is copied to host memory after
//     its forward and back before its backward; the last two blocks never leave their slots.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/base/names.h"
#include "lib/schedule/config.h"

namespace tessera::memory {

enum class ActionKind : std::uint8_t {
  gather,     // the unit's weights, from all ranks of a shard group
  forward,    // root: embedding; block: the block
  head,       // root: final norm, logits and loss by chunks of rows, and their gradients
  offload,    // what the block keeps, to host memory
  fetch,      // and back
  recompute,  // block: its forward again, for what was not kept
  backward,   // block: its gradients; root: the embedding's
  reduce,     // sum of the unit's gradient over the ranks
  norm,       // of all gradients, and whether the step is made (unit 0)
  update,     // optimizer on the unit
};

struct Action {
  ActionKind kind = ActionKind::forward;
  std::int16_t unit = 0;
  std::int16_t microbatch = 0;  // of norm, update and what is done once a step: of the last use
  Stream stream = Stream::compute;
  std::vector<int> after;           // ticks of other streams' actions that must have ended
  std::vector<int> after_previous;  // likewise, of the step before
  bool operator==(const Action&) const = default;
};

// Slots that blocks share in turn (sharding, offload): that of block unit `unit`.
inline constexpr int kRotatingSlots = 2;
constexpr std::int64_t slot_of(std::int64_t unit) {
  return unit % kRotatingSlots;
}

// Whether what block unit `unit` (of `blocks`) keeps goes to host memory.
constexpr bool leaves_device(std::int64_t unit, std::int64_t blocks) {
  return unit <= blocks - kRotatingSlots;
}

// The actions of a step of `microbatches`, in the order of issue. Error(unsupported) for more than
// 32,766 blocks or microbatches. A head of its own has no forward or backward: `head` works on it
// too.
std::vector<Action> schedule(const Config& config, std::int64_t microbatches);

// First tick of this kind, unit and microbatch, or -1.
int tick_of(std::span<const Action> actions, ActionKind kind, std::int64_t unit,
            std::int64_t microbatch = 0);

// "root", "block 2", "head".
std::string unit_name(std::int64_t unit, const model::Shape& shape);

// One line an action: "  12 compute  backward   block 2     microbatch 0  after 9".
std::string describe(std::span<const Action> actions, const model::Shape& shape);

}  // namespace tessera::memory

namespace tessera {
template <>
struct Names<memory::ActionKind> {
  using enum memory::ActionKind;
  static constexpr std::pair<memory::ActionKind, std::string_view> table[] = {
      {gather, "gather"}, {forward, "forward"},     {head, "head"},         {offload, "offload"},
      {fetch, "fetch"},   {recompute, "recompute"}, {backward, "backward"}, {reduce, "reduce"},
      {norm, "norm"},     {update, "update"}};
};
template <>
struct Names<Stream> {
  static constexpr std::pair<Stream, std::string_view> table[] = {{Stream::compute, "compute"},
                                                                  {Stream::gather, "gather"},
                                                                  {Stream::reduce, "reduce"},
                                                                  {Stream::copy, "copy"}};
};
}  // namespace tessera
