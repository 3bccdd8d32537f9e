// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/decoder.h"

#include <algorithm>

#include "trainer/model/block.h"
#include "trainer/model/root.h"

namespace tessera::trainer {

namespace {

using memory::ActionKind;

// Each parameter has 2^kIndexBits random numbers of its own, more than it has elements.
constexpr int kIndexBits = 40;

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

void emit_compute(const Pass& pass, ActionKind kind) {
  if (pass.unit == 0) {
    emit_root(pass, kind);
  } else {
    emit_block(pass, kind);
  }
}

Sequence initial_operations(const Memory& memory, std::uint64_t seed) {
  Sequence operations;
  for (std::size_t number = 0; number < memory.units().size(); ++number) {
    const auto unit = static_cast<std::int16_t>(number);
    const auto emit = [&](const Op& op) { operations.push_back({op, unit, Phase::update, 0}); };
    const auto fill = [&](const memory::Parameter& parameter, const Tensor& dst) {
      if (parameter.init_mean == 0 && parameter.init_stddev == 0) return;
      emit(Init{.dst = rows_of(dst, 0, parameter.used_rows),
                .mean = parameter.init_mean,
                .stddev = parameter.init_stddev,
                .seed = seed,
                .first_index = static_cast<std::uint64_t>(parameter.index) << kIndexBits});
    };
    const memory::Unit& all = memory.units()[number];
    if (memory::is_trained(all)) {
      for (const char* kind : {"master", "grad", "m", "v"})
        emit(Init{.dst = memory.flat(unit, kind)});
      for (const memory::Parameter& parameter : all.trained.parameters)
        fill(parameter, memory.master(unit, parameter.name));
    }
    if (all.frozen.elements > 0) emit(Init{.dst = memory.flat(unit, "frozen")});
    for (const memory::Parameter& parameter : all.frozen.parameters)
      fill(parameter, memory.parameter(unit, parameter.name));
  }
  for (const Issue& cast : cast_operations(memory)) operations.push_back(cast);
  return operations;
}

Sequence cast_operations(const Memory& memory) {
  Sequence operations;
  if (memory.compute() == DType::f32) return operations;
  for (std::size_t number = 0; number < memory.units().size(); ++number) {
    const auto unit = static_cast<std::int16_t>(number);
    if (!memory::is_trained(memory.units()[number])) continue;
    operations.push_back(
        {Cast{.src = memory.flat(unit, "master"), .dst = memory.flat(unit, "param")}, unit,
         Phase::update, 0});
  }
  return operations;
}

}  // namespace tessera::trainer
