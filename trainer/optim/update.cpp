// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/update.h"

namespace tessera::trainer {

namespace {

using memory::ActionKind;

void emit_norm(const Memory& memory, int tick, Sequence& out) {
  auto* partials = reinterpret_cast<double*>(memory.data("norm_partials"));
  std::int64_t count = 0;
  for (std::size_t number = 0; number < memory.units().size(); ++number) {
    const auto unit = static_cast<std::int16_t>(number);
    if (!memory::is_trained(memory.units()[number])) continue;
    const Tensor gradient = memory.flat(unit, "grad");
    out.push_back(
        {SquaredNorm{.x = gradient, .partials = partials + count}, unit, Phase::update, tick});
    count += squared_norm_partials(gradient.cols);
  }
  out.push_back({FinishNorm{.partials = partials,
                            .count = count,
                            .in = reinterpret_cast<const StepInputs*>(memory.data("inputs")),
                            .state = reinterpret_cast<StepState*>(memory.data("state"))},
                 0, Phase::update, tick});
}

AdamW adamw(const Memory& memory, const Recipe& recipe, std::int16_t unit) {
  AdamW op{.grad = memory.flat(unit, "grad"),
           .master = memory.flat(unit, "master"),
           .m = memory.flat(unit, "m"),
           .v = memory.flat(unit, "v"),
           .beta1 = static_cast<float>(recipe.beta1),
           .beta2 = static_cast<float>(recipe.beta2),
           .eps = static_cast<float>(recipe.eps),
           .decay_end = memory.units()[static_cast<std::size_t>(unit)].trained.decay_end,
           .in = reinterpret_cast<const StepInputs*>(memory.data("inputs")),
           .state = reinterpret_cast<const StepState*>(memory.data("state"))};
  if (memory.compute() != DType::f32) op.param = memory.flat(unit, "param");
  return op;
}

}  // namespace

Sequence update_operations(const Memory& memory, const Recipe& recipe) {
  Sequence operations;
  const std::vector<memory::Action>& actions = memory.plan().actions;
  for (std::size_t tick = 0; tick < actions.size(); ++tick) {
    const memory::Action& action = actions[tick];
    if (action.kind == ActionKind::norm) {
      emit_norm(memory, static_cast<int>(tick), operations);
    } else if (action.kind == ActionKind::update &&
               memory::is_trained(memory.units()[static_cast<std::size_t>(action.unit)])) {
      operations.push_back(
          {adamw(memory, recipe, action.unit), action.unit, Phase::update, static_cast<int>(tick)});
    }
  }
  return operations;
}

}  // namespace tessera::trainer
