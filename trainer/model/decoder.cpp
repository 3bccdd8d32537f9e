#include "trainer/model/decoder.h"

#include <algorithm>

#include "trainer/model/block.h"
#include "trainer/model/root.h"

namespace tessera::trainer {

namespace {

using memory::ActionKind;

// Random numbers of each parameter: more than any has elements.
constexpr int kIndexBits = 40;

Phase phase_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
    case ActionKind::head:
      return Phase::forward;
    case ActionKind::recompute:
      return Phase::recompute;
    case ActionKind::backward:
      return Phase::backward;
    case ActionKind::norm:
    case ActionKind::update:
      return Phase::update;
  }
  return Phase::forward;
}

void emit_root(const Pass& pass, ActionKind kind) {
  if (kind == ActionKind::forward) return embed_forward(pass);
  if (kind == ActionKind::head) return head(pass);
  embed_backward(pass);
}

void emit_block(const Pass& pass, ActionKind kind) {
  const std::int64_t layer = pass.unit - 1;
  if (kind == ActionKind::forward) return block_forward(pass, layer);
  if (kind == ActionKind::recompute) return block_recompute(pass, layer);
  block_backward(pass, layer);
}

}  // namespace

Sequence microbatch_operations(const Memory& memory, std::int64_t sequences, bool first) {
  Sequence operations;
  const std::vector<memory::Action>& actions = memory.plan().actions;
  for (std::size_t tick = 0; tick < actions.size(); ++tick) {
    const memory::Action& action = actions[tick];
    if (phase_of(action.kind) == Phase::update) continue;  // once a step: trainer/optim
    const Pass pass{.memory = memory,
                    .out = operations,
                    .sequences = sequences,
                    .accumulate = !first,
                    .unit = action.unit,
                    .phase = phase_of(action.kind),
                    .tick = static_cast<int>(tick)};
    if (action.unit == 0) {
      emit_root(pass, action.kind);
    } else {
      emit_block(pass, action.kind);
    }
  }
  return operations;
}

Sequence initial_operations(const Memory& memory, std::uint64_t seed) {
  Sequence operations;
  for (std::size_t number = 0; number < memory.units().size(); ++number) {
    const auto unit = static_cast<std::int16_t>(number);
    const auto emit = [&](const Op& op) { operations.push_back({op, unit, Phase::update, 0}); };
    for (const char* kind : {"master", "grad", "m", "v"})
      emit(Init{.dst = memory.flat(unit, kind)});
    for (const memory::Parameter& parameter : memory.units()[number].trained.parameters) {
      if (parameter.init_mean == 0 && parameter.init_stddev == 0) continue;
      emit(Init{.dst = rows_of(memory.master(unit, parameter.name), 0, parameter.used_rows),
                .mean = parameter.init_mean,
                .stddev = parameter.init_stddev,
                .seed = seed,
                .first_index = static_cast<std::uint64_t>(parameter.index) << kIndexBits});
    }
  }
  for (const Issue& cast : cast_operations(memory)) operations.push_back(cast);
  return operations;
}

Sequence cast_operations(const Memory& memory) {
  Sequence operations;
  if (memory.compute() == DType::f32) return operations;
  for (std::size_t number = 0; number < memory.units().size(); ++number) {
    const auto unit = static_cast<std::int16_t>(number);
    operations.push_back(
        {Cast{.src = memory.flat(unit, "master"), .dst = memory.flat(unit, "param")}, unit,
         Phase::update, 0});
  }
  return operations;
}

std::int64_t gradient_partials(const memory::Config& config) {
  const model::Shape& shape = config.shape;
  std::int64_t most = 0;
  for (const std::int64_t sequences :
       memory::microbatches(config.device_batch, config.microbatch)) {
    const std::int64_t rows = sequences * config.seq_len;
    for (const std::int64_t cols :
         {model::qkv_width(shape), shape.d_model, model::mlp_in_width(shape)})
      most = std::max(most, bias_grad_partials(rows, cols));
    most = std::max(most, norm_partials(rows, shape.d_model));
  }
  return most;
}

}  // namespace tessera::trainer
