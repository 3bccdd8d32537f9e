// SPDX-License-Identifier: Apache-2.0
#include "trainer/shard/step.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/base/error.h"
#include "trainer/model/decoder.h"
#include "trainer/optim/update.h"
#include "trainer/shard/transfers.h"

namespace tessera::trainer {

namespace {

using memory::Action;
using memory::ActionKind;

constexpr std::int64_t kFirst = 0, kMiddle = 1, kLast = 2, kUpdate = 3;  // of parts_

bool is_update(ActionKind kind) {
  return kind == ActionKind::norm || kind == ActionKind::update;
}

Phase phase_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::gather:
    case ActionKind::forward:
    case ActionKind::head:
    case ActionKind::offload:
      return Phase::forward;
    case ActionKind::recompute:
      return Phase::recompute;
    case ActionKind::fetch:
    case ActionKind::backward:
    case ActionKind::reduce:
      return Phase::backward;
    case ActionKind::norm:
    case ActionKind::update:
      return Phase::update;
  }
  return Phase::forward;
}

void emit(const Pass& pass, ActionKind kind) {
  const std::int64_t layer = pass.unit - 1;
  switch (kind) {
    case ActionKind::offload:
      return offload_block(pass, layer);
    case ActionKind::fetch:
      return fetch_block(pass, layer);
    case ActionKind::reduce:
      return reduce_unit(pass);
    case ActionKind::gather:
      throw Error(ExitCode::internal, "schedule", "has gathers, which are not executed yet");
    default:
      return emit_compute(pass, kind);
  }
}

// Returns the first issue of a tick in a sequence that is sorted by tick.
std::size_t begin_of(const Sequence& sequence, int tick) {
  const auto found = std::ranges::lower_bound(sequence, tick, {}, &Issue::tick);
  return static_cast<std::size_t>(found - sequence.begin());
}

}  // namespace

Sequence microbatch_operations(const Memory& memory, std::int64_t sequences, bool first) {
  Sequence operations;
  const std::vector<Action>& actions = memory.plan().actions;
  for (std::size_t tick = 0; tick < actions.size(); ++tick) {
    const Action& action = actions[tick];
    if (is_update(action.kind)) continue;  // once a step, by trainer/optim
    emit({.memory = memory,
          .out = operations,
          .sequences = sequences,
          .accumulate = !first,
          .unit = action.unit,
          .phase = phase_of(action.kind),
          .tick = static_cast<int>(tick)},
         action.kind);
  }
  return operations;
}

Step::Step(const Memory& memory, const Recipe& recipe) {
  const memory::Config& config = memory.config();
  const std::vector<std::int64_t> sizes =
      memory::microbatches(config.device_batch, config.microbatch);
  const auto count = static_cast<std::int64_t>(sizes.size());
  schedule_ = memory::schedule(config, count);
  parts_[kFirst] = microbatch_operations(memory, sizes.front(), true);
  if (count > 1) parts_[kLast] = microbatch_operations(memory, sizes.back(), false);
  if (count > 2) parts_[kMiddle] = microbatch_operations(memory, sizes[1], false);
  parts_[kUpdate] = update_operations(memory, recipe);

  // The plan knows one microbatch: its ticks tell where in parts_ an action's work lies.
  const std::vector<Action>& planned = memory.plan().actions;
  std::int64_t microbatch = -1;
  for (const Action& action : schedule_) {
    if (!action.after_previous.empty())
      throw Error(ExitCode::internal, "schedule", "waits across steps are not executed yet");
    if (is_update(action.kind)) {
      if (microbatch < count) begins_.push_back(entries_.size());
      microbatch = count;
    } else if (action.microbatch > microbatch) {
      begins_.push_back(entries_.size());
      microbatch = action.microbatch;
    }
    const int tick = memory::tick_of(planned, action.kind, action.unit);
    const std::int64_t part = is_update(action.kind)           ? kUpdate
                              : action.microbatch == 0         ? kFirst
                              : action.microbatch + 1 == count ? kLast
                                                               : kMiddle;
    const Sequence& sequence = parts_[static_cast<std::size_t>(part)];
    entries_.push_back({.part = part,
                        .begin = begin_of(sequence, tick),
                        .end = begin_of(sequence, tick + 1),
                        .microbatch = action.microbatch,
                        .stream = action.stream,
                        .waits = {},
                        .record = {}});
  }
  begins_.push_back(entries_.size());
  assign_events();
}

// Assigns events greedily: an event is free again once the last wait for it has been issued.
void Step::assign_events() {
  std::vector<int> last_wait(schedule_.size(), -1);
  for (std::size_t tick = 0; tick < schedule_.size(); ++tick) {
    for (const int other : schedule_[tick].after)
      last_wait[static_cast<std::size_t>(other)] = static_cast<int>(tick);
  }
  std::vector<int> busy_until(kEvents, -1);
  for (std::size_t tick = 0; tick < schedule_.size(); ++tick) {
    for (const int other : schedule_[tick].after)
      entries_[tick].waits.emplace_back(*entries_[static_cast<std::size_t>(other)].record, other);
    if (last_wait[tick] < 0) continue;
    const auto free = std::find_if(busy_until.begin() + kFirstScheduleEvent, busy_until.end(),
                                   [&](int until) { return until < static_cast<int>(tick); });
    if (free == busy_until.end())
      throw Error(ExitCode::internal, "schedule", "needs more events than there are");
    *free = last_wait[tick];
    entries_[tick].record = static_cast<Event>(free - busy_until.begin());
  }
}

void Step::run_microbatch(Device& device, Communicator& communicator, std::size_t i) const {
  run(device, communicator, begins_[i], begins_[i + 1]);
}

void Step::run_update(Device& device, Communicator& communicator) const {
  run(device, communicator, begins_[begins_.size() - 2], begins_.back());
}

void Step::run(Device& device, Communicator& communicator, std::size_t begin,
               std::size_t end) const {
  for (std::size_t i = begin; i < end; ++i) {
    const Entry& entry = entries_[i];
    for (const auto& [event, tick] : entry.waits) device.wait(entry.stream, event);
    for (const Issue& issue : work(entry)) {
      if (const Op* op = issue.op()) {
        device.run(issue.stream, *op,
                   {.unit = issue.unit, .microbatch = entry.microbatch, .phase = issue.phase});
      } else if (const auto* copy = std::get_if<Copy>(&issue.work)) {
        device.copy(issue.stream, copy->dst, copy->src, copy->bytes);
      } else {
        communicator.all_reduce_sum(issue.stream, std::get<AllReduce>(issue.work).tensor);
      }
    }
    if (entry.record) device.record(entry.stream, *entry.record);
  }
}

std::vector<Op> Step::operations() const {
  std::vector<Op> all;
  for (const Sequence& sequence : parts_) {
    for (const Issue& issue : sequence) {
      if (const Op* op = issue.op()) all.push_back(*op);
    }
  }
  return all;
}

std::size_t Step::waits() const {
  std::size_t count = 0;
  for (const Entry& entry : entries_) count += entry.waits.size();
  return count;
}

void Step::without(std::size_t wait) {
  for (Entry& entry : entries_) {
    if (wait < entry.waits.size()) {
      entry.waits.erase(entry.waits.begin() + static_cast<std::ptrdiff_t>(wait));
      return;
    }
    wait -= entry.waits.size();
  }
}

}  // namespace tessera::trainer
