// SPDX-License-Identifier: Apache-2.0
#include "lib/schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "lib/base/error.h"
#include "lib/schedule/units.h"

namespace tessera::memory {

namespace {

// Whose weights or gradients a slot holds, and when it was last used.
struct Slot {
  std::int64_t unit = -1;
  int last_use = -1;  // tick on another stream than that which fills it
};

class Builder {
 public:
  Builder(const Config& config, std::int64_t microbatches)
      : config_(config),
        mask_(mask_of(config)),
        blocks_(config.shape.n_layers),
        microbatches_(microbatches),
        sharded_(shard_ranks(config) > 1),
        keeps_slots_(config.sharding == Sharding::shard_grad_op),
        places_(static_cast<std::size_t>(std::max<std::int64_t>(blocks_, kRotatingSlots) + 2)),
        slots_(places_),
        gathered_(places_, -1),
        reduced_(places_, -1),
        offloaded_(static_cast<std::size_t>(blocks_ + 1), -1),
        fetched_(static_cast<std::size_t>(blocks_ + 1), -1) {}

  std::vector<Action> build() {
    for (microbatch_ = 0; microbatch_ < microbatches_; ++microbatch_) {
      forward();
      backward();
    }
    microbatch_ = microbatches_ - 1;
    const int norm = add(ActionKind::norm, 0, Stream::compute);
    wait(norm, last_reduce_);
    for (std::int64_t unit = 0; unit < unit_count(config_.shape); ++unit)
      updates_.push_back(add(ActionKind::update, unit, Stream::compute));
    // Updates of the step before have the ticks that they have in this one.
    for (const auto& [gather, unit] : first_gathers_)
      at(gather).after_previous.push_back(updates_[static_cast<std::size_t>(unit)]);
    return std::move(actions_);
  }

 private:
  // The last tick of each stream that has ended.
  using Clock = std::array<int, kStreams>;

  static std::array<Clock, kStreams> nothing_ended() {
    std::array<Clock, kStreams> clocks{};
    for (Clock& clock : clocks) clock.fill(-1);
    return clocks;
  }

  Action& at(int tick) { return actions_[static_cast<std::size_t>(tick)]; }
  bool is_last() const { return microbatch_ + 1 == microbatches_; }
  bool has_own_head() const { return !config_.shape.tied; }
  std::int64_t head_unit() const { return has_own_head() ? blocks_ + 1 : 0; }

  int add(ActionKind kind, std::int64_t unit, Stream stream) {
    const int tick = static_cast<int>(actions_.size());
    actions_.push_back({.kind = kind,
                        .unit = static_cast<std::int16_t>(unit),
                        .microbatch = static_cast<std::int16_t>(microbatch_),
                        .stream = stream});
    Clock& clock = now_[static_cast<std::size_t>(stream)];
    clock[static_cast<std::size_t>(stream)] = tick;
    ended_.push_back(clock);
    return tick;
  }

  bool is_ended(int tick, const Clock& clock) const {
    return tick <= clock[static_cast<std::size_t>(actions_[static_cast<std::size_t>(tick)].stream)];
  }

  // `tick`, the last action of its stream so far, begins when `for_tick` has ended. Not said where
  // other waits imply it. -1: nothing to wait for.
  void wait(int tick, int for_tick) {
    Clock& clock = ended_[static_cast<std::size_t>(tick)];
    if (for_tick < 0 || is_ended(for_tick, clock)) return;
    const Clock& other = ended_[static_cast<std::size_t>(for_tick)];
    std::vector<int>& after = at(tick).after;
    std::erase_if(after, [&](int earlier) { return is_ended(earlier, other); });
    after.push_back(for_tick);
    for (std::size_t stream = 0; stream < clock.size(); ++stream)
      clock[stream] = std::max(clock[stream], other[stream]);
    now_[static_cast<std::size_t>(at(tick).stream)] = clock;
  }

  // Number of the place that a unit has: the root's, blocks' in turn or of their own, the head's.
  std::size_t place(std::int64_t unit, bool in_turn) const {
    if (unit > blocks_) return places_ - 1;
    if (unit == 0) return 0;
    return static_cast<std::size_t>(in_turn ? 1 + slot_of(unit) : unit);
  }

  // ---- weights

  std::size_t weights(std::int64_t unit) const { return place(unit, !keeps_slots_); }

  // The unit's weights will be in its slot; nothing if they are.
  void gather(std::int64_t unit) {
    if (!sharded_) return;
    Slot& slot = slots_[weights(unit)];
    if (slot.unit == unit) return;
    const int tick = add(ActionKind::gather, unit, Stream::gather);
    wait(tick, slot.last_use);
    // What has waited for compute in this step has waited for the last step's updates.
    constexpr auto kCompute = static_cast<std::size_t>(Stream::compute);
    if (ended_.back()[kCompute] < 0) first_gathers_.emplace_back(tick, unit);
    slot = {.unit = unit};
    gathered_[weights(unit)] = tick;
  }

  // A compute action that reads the unit's weights.
  void read_weights(int tick, std::int64_t unit) {
    if (!sharded_) return;
    wait(tick, gathered_[weights(unit)]);
    slots_[weights(unit)].last_use = tick;
  }

  // ---- gradients

  // The last reduction from the place that the unit's gradient is written to.
  int& reduced(std::int64_t unit) { return reduced_[place(unit, sharded_)]; }
  void write_gradient(int tick, std::int64_t unit) {
    if (sharded_) wait(tick, reduced(unit));
  }
  void reduce(std::int64_t unit, int written) {
    if (config_.world == 1 || (!sharded_ && !is_last())) return;
    const int tick = add(ActionKind::reduce, unit, Stream::reduce);
    wait(tick, written);
    reduced(unit) = tick;
    last_reduce_ = tick;
  }

  // ---- passes

  void forward() {
    gather(0);
    gather(1);
    read_weights(add(ActionKind::forward, 0, Stream::compute), 0);
    for (std::int64_t unit = 1; unit <= blocks_; ++unit) {
      if (unit < blocks_) {
        gather(unit + 1);
      } else if (has_own_head()) {
        gather(head_unit());
      }
      const int tick = add(ActionKind::forward, unit, Stream::compute);
      read_weights(tick, unit);
      if (config_.offload) offload(tick, unit);
    }
    const int head = add(ActionKind::head, 0, Stream::compute);
    read_weights(head, 0);
    if (has_own_head()) read_weights(head, head_unit());
    write_gradient(head, 0);
    if (has_own_head()) {
      write_gradient(head, head_unit());
      reduce(head_unit(), head);
    }
  }

  // `tick` is the block's forward, which fills its slot.
  void offload(int tick, std::int64_t unit) {
    if (unit > kRotatingSlots)
      wait(tick, offloaded_[static_cast<std::size_t>(unit - kRotatingSlots)]);
    if (!leaves_device(unit, blocks_)) return;
    const int copy = add(ActionKind::offload, unit, Stream::copy);
    wait(copy, tick);
    offloaded_[static_cast<std::size_t>(unit)] = copy;
  }

  // Into the slot of block unit + 2, which has been left by its backward.
  void fetch(std::int64_t unit, int left) {
    if (!config_.offload || unit < 1 || !leaves_device(unit, blocks_)) return;
    const int copy = add(ActionKind::fetch, unit, Stream::copy);
    wait(copy, left);
    fetched_[static_cast<std::size_t>(unit)] = copy;
  }

  // Its weights, and what it has kept.
  void read_block(int tick, std::int64_t unit) {
    read_weights(tick, unit);
    wait(tick, fetched_[static_cast<std::size_t>(unit)]);
  }

  void backward() {
    int left = -1;  // backward of the block after
    for (std::int64_t unit = blocks_; unit >= 1; --unit) {
      if (unit > 1) gather(unit - 1);
      fetch(unit - 1, left);
      if (mask_[static_cast<std::size_t>(unit - 1)] != Keep::all)
        read_block(add(ActionKind::recompute, unit, Stream::compute), unit);
      const int tick = add(ActionKind::backward, unit, Stream::compute);
      read_block(tick, unit);
      write_gradient(tick, unit);
      reduce(unit, tick);
      left = tick;
    }
    reduce(0, add(ActionKind::backward, 0, Stream::compute));
  }

  const Config& config_;
  RecomputeMask mask_;
  std::int64_t blocks_;
  std::int64_t microbatches_;
  std::int64_t microbatch_ = 0;
  bool sharded_;
  bool keeps_slots_;
  std::size_t places_;
  std::vector<Action> actions_;
  std::vector<Slot> slots_;                                  // of weights, by place
  std::vector<int> gathered_;                                // tick of the last gather, by place
  std::vector<std::pair<int, std::int64_t>> first_gathers_;  // tick, unit
  std::vector<int> reduced_;                                 // by place
  std::vector<int> offloaded_, fetched_;                     // by unit
  std::vector<int> updates_;
  std::array<Clock, kStreams> now_ = nothing_ended();
  std::vector<Clock> ended_;  // by tick: what has ended when the action has
  int last_reduce_ = -1;
};

}  // namespace

std::vector<Action> schedule(const Config& config, std::int64_t microbatches) {
  static_assert(kMostMicrobatches < std::numeric_limits<std::int16_t>::max());
  if (config.shape.n_layers > kMostMicrobatches || microbatches > kMostMicrobatches) {
    throw Error(
        ExitCode::unsupported, "schedule",
        fmt::format("{} blocks and {} microbatches a step", config.shape.n_layers, microbatches),
        fmt::format("at most {} of each", kMostMicrobatches));
  }
  return Builder(config, microbatches).build();
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

std::string unit_name(std::int64_t unit, const model::Shape& shape) {
  if (unit == 0) return "root";
  if (unit > shape.n_layers) return "head";
  return fmt::format("block {}", unit - 1);
}

std::string describe(std::span<const Action> actions, const model::Shape& shape) {
  std::string text;
  for (std::size_t tick = 0; tick < actions.size(); ++tick) {
    const Action& action = actions[tick];
    std::string waits;
    for (const int other : action.after)
      waits += fmt::format("{} {}", waits.empty() ? "" : ",", other);
    for (const int other : action.after_previous)
      waits += fmt::format("{} {} of the step before", waits.empty() ? "" : ",", other);
    text += fmt::format("{:5} {:8} {:10} {:10} microbatch {}{}{}\n", tick, to_text(action.stream),
                        tessera::to_text(action.kind), unit_name(action.unit, shape),
                        action.microbatch, waits.empty() ? "" : "  after", waits);
  }
  return text;
}

}  // namespace tessera::memory
