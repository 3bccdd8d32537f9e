// One optimizer step as a value: which part of the model is computed when, for one rank.
//
// Pure and printable; trainer/ only executes it. An action's place in the list is its tick, which
// the lives of the memory plan count in. With more than one rank, a gather stands before the first
// use of a unit, a reduce after its backward, each with the actions it waits for; they come with
// sharding.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/base/names.h"
#include "lib/memory/dtype.h"
#include "lib/memory/recompute.h"
#include "lib/model/shape.h"

namespace tessera::memory {

enum class ActionKind : std::uint8_t {
  forward,    // root: embedding; block: the block
  head,       // root: final norm, logits and loss by chunks of rows, and their gradients
  recompute,  // block: its forward again, for what was not kept
  backward,   // block: its gradients; root: the embedding's
  norm,       // of all gradients, and whether the step is made (unit 0)
  update,     // optimizer on the unit
};

struct Action {
  ActionKind kind = ActionKind::forward;
  std::int16_t unit = 0;
  std::int16_t microbatch = 0;  // of norm and update: the last
  Stream stream = Stream::compute;
  bool operator==(const Action&) const = default;
};

// The actions of a step in the order of issue. Blocks and `microbatches` at most 32,767. A head of
// its own has no action but its update: `head` works on it too. `mask` has one entry a block.
std::vector<Action> schedule(const model::Shape& shape, std::int64_t microbatches,
                             const RecomputeMask& mask);

// First tick of this kind, unit and microbatch, or -1.
int tick_of(std::span<const Action> actions, ActionKind kind, std::int64_t unit,
            std::int64_t microbatch = 0);

// One line an action: "  12 compute  backward   unit 3  microbatch 0".
std::string describe(std::span<const Action> actions);

}  // namespace tessera::memory

namespace tessera {
template <>
struct Names<memory::ActionKind> {
  using enum memory::ActionKind;
  static constexpr std::pair<memory::ActionKind, std::string_view> table[] = {
      {forward, "forward"},   {head, "head"}, {recompute, "recompute"},
      {backward, "backward"}, {norm, "norm"}, {update, "update"}};
};
template <>
struct Names<Stream> {
  static constexpr std::pair<Stream, std::string_view> table[] = {{Stream::compute, "compute"},
                                                                  {Stream::gather, "gather"},
                                                                  {Stream::reduce, "reduce"},
                                                                  {Stream::copy, "copy"}};
};
}  // namespace tessera
