#include "lib/memory/schedule.h"

#include <fmt/format.h>

#include <limits>

#include "lib/base/error.h"
#include "lib/memory/units.h"

namespace tessera::memory {

std::vector<Action> schedule(const model::Shape& shape, std::int64_t microbatches,
                             const RecomputeMask& mask) {
  const std::int64_t blocks = shape.n_layers;
  constexpr std::int64_t kMost = std::numeric_limits<std::int16_t>::max();
  if (blocks >= kMost || microbatches > kMost) {
    throw Error(ExitCode::unsupported, "schedule",
                fmt::format("{} blocks and {} microbatches a step", blocks, microbatches),
                fmt::format("at most {} of each", kMost));
  }
  std::vector<Action> actions;
  const auto add = [&](ActionKind kind, std::int64_t unit, std::int64_t microbatch) {
    actions.push_back({.kind = kind,
                       .unit = static_cast<std::int16_t>(unit),
                       .microbatch = static_cast<std::int16_t>(microbatch)});
  };
  for (std::int64_t microbatch = 0; microbatch < microbatches; ++microbatch) {
    for (std::int64_t unit = 0; unit <= blocks; ++unit) add(ActionKind::forward, unit, microbatch);
    add(ActionKind::head, 0, microbatch);
    for (std::int64_t unit = blocks; unit >= 1; --unit) {
      if (mask[static_cast<std::size_t>(unit - 1)] != Keep::all)
        add(ActionKind::recompute, unit, microbatch);
      add(ActionKind::backward, unit, microbatch);
    }
    add(ActionKind::backward, 0, microbatch);
  }
  add(ActionKind::norm, 0, microbatches - 1);
  for (std::int64_t unit = 0; unit < unit_count(shape); ++unit)
    add(ActionKind::update, unit, microbatches - 1);
  return actions;
}

int tick_of(std::span<const Action> actions, ActionKind kind, std::int64_t unit,
            std::int64_t microbatch) {
  for (std::size_t tick = 0; tick < actions.size(); ++tick) {
    const Action& action = actions[tick];
    if (action.kind == kind && action.unit == unit && action.microbatch == microbatch)
      return static_cast<int>(tick);
  }
  return -1;
}

std::string describe(std::span<const Action> actions) {
  std::string text;
  for (std::size_t tick = 0; tick < actions.size(); ++tick) {
    const Action& action = actions[tick];
    text += fmt::format("{:5} {:8} {:9} unit {:3}  microbatch {}\n", tick, to_text(action.stream),
                        tessera::to_text(action.kind), action.unit, action.microbatch);
  }
  return text;
}

}  // namespace tessera::memory
