// SPDX-License-Identifier: Apache-2.0
#include "lib/memory/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/base/error.h"
#include "lib/memory/scratch.h"
#include "lib/schedule/units.h"

namespace tessera::memory {

namespace {

constexpr std::int64_t kF32 = bytes_of(DType::f32);

class PlanBuilder {
 public:
  explicit PlanBuilder(const Config& config)
      : config_(config),
        scratch_(scratch(config)),
        low_(bytes_of(compute_dtype(config.precision))),
        residual_(bytes_of(residual_dtype(config))),
        rows_(config.microbatch * config.seq_len),
        mask_(mask_of(config)) {
    plan_.actions = schedule(config, 1);
  }

  Plan build() {
    states();
    step();
    blocks();
    head();
    gradients();
    plan_.pool_bytes = place(plan_.buffers, static_cast<int>(plan_.actions.size()));
    return std::move(plan_);
  }

 private:
  const model::Shape& shape() const { return config_.shape; }
  int tick(ActionKind kind, std::int64_t unit) const { return tick_of(plan_.actions, kind, unit); }
  int end() const { return static_cast<int>(plan_.actions.size()) - 1; }
  // Ticks of block `layer`.
  int forward(std::int64_t layer) const { return tick(ActionKind::forward, layer + 1); }
  int again(std::int64_t layer) const { return tick(ActionKind::recompute, layer + 1); }
  int backward(std::int64_t layer) const { return tick(ActionKind::backward, layer + 1); }
  int head_tick() const { return tick(ActionKind::head, 0); }

  void add(Use use, std::string name, std::int64_t bytes, int first, int last,
           Pool pool = Pool::device) {
    plan_.buffers.push_back({.name = std::move(name),
                             .use = use,
                             .pool = pool,
                             .bytes = bytes,
                             .first = first,
                             .last = last});
  }
  void always(Use use, std::string name, std::int64_t bytes, Pool pool = Pool::device) {
    add(use, std::move(name), bytes, 0, end(), pool);
  }

  // Weights, gradients that accumulate, moments: this rank's part of each unit.
  void states() {
    const std::int64_t ranks = shard_ranks(config_);
    const bool is_low = !is_f32(config_.precision);
    const std::vector<Unit> all = units(config_);
    std::int64_t widest = 0;
    for (std::size_t unit = 0; unit < all.size(); ++unit) {
      const std::int64_t whole = all[unit].trained.elements;
      const std::int64_t part = ranks == 1 ? whole : shard_elements(whole, ranks);
      widest = std::max(widest, ranks * part);
      const auto named = [&](const char* kind) { return fmt::format("u{}.{}", unit, kind); };
      always(Use::weights, named("master"), part * kF32);
      always(Use::gradients, named("grad"), part * kF32);
      always(Use::moments, named("m"), part * kF32);
      always(Use::moments, named("v"), part * kF32);
      if (is_low && ranks == 1) always(Use::weights, named("param"), part * low_);
      const std::int64_t frozen = all[unit].frozen.elements;
      if (frozen > 0) {
        always(Use::weights, named("frozen"),
               (ranks == 1 ? frozen : shard_elements(frozen, ranks)) * low_);
      }
    }
    if (ranks > 1) slots(all, ranks);
    // Gradients as they travel, from one buffer: the reductions are in order.
    if (config_.world > 1 && config_.mixed_precision == MixedPrecision::pure)
      always(Use::gathered, "wire", widest * low_, Pool::communication);
  }

  // Slots of units whose state is split: gathered weights, and gradients until they are reduced.
  void slots(const std::vector<Unit>& all, std::int64_t ranks) {
    const auto whole = [&](const FlatBuffer& flat) {
      return flat.elements == 0 ? 0 : ranks * shard_elements(flat.elements, ranks);
    };
    const auto weights = [&](const std::string& place, const Unit& unit) {
      const bool full = config_.mixed_precision == MixedPrecision::full;
      const std::int64_t trained = whole(unit.trained);
      always(Use::gathered, place + ".weights",
             trained * (full ? kF32 : low_) + whole(unit.frozen) * low_, Pool::communication);
      if (full && low_ != kF32) always(Use::gathered, place + ".cast", trained * low_);
    };
    const auto gradient = [&](const std::string& place, const Unit& unit) {
      always(Use::gathered, place + ".gradient", whole(unit.trained) * kF32, Pool::communication);
    };
    weights("root", all.front());
    gradient("root", all.front());
    if (!shape().tied) {
      weights("head", all.back());
      gradient("head", all.back());
    }
    // All blocks are alike.
    const std::int64_t turns = std::min<std::int64_t>(kRotatingSlots, shape().n_layers);
    const bool in_turn = config_.sharding != Sharding::shard_grad_op;
    for (std::int64_t i = 0; i < (in_turn ? turns : shape().n_layers); ++i)
      weights(fmt::format("{}{}", in_turn ? "turn" : "block", i), all[1]);
    for (std::int64_t i = 0; i < turns; ++i) gradient(fmt::format("turn{}", i), all[1]);
  }

  void step() {
    always(Use::step, "inputs", kStepScalarsBytes);
    always(Use::step, "state", kStepScalarsBytes);
    always(Use::workspace, "workspace", scratch_.workspace);
    const int norm = tick(ActionKind::norm, 0);
    add(Use::workspace, "norm_partials", scratch_.norm_partials, norm, norm);

    const std::int64_t one =
        batch_layout(config_, config_.microbatch).elements * bytes_of(DType::i32);
    add(Use::step, "batch", one, 0, tick(ActionKind::backward, 0));
    const std::int64_t count = microbatch_count(config_.device_batch, config_.microbatch);
    for (int slot = 0; slot < kSlots; ++slot) {
      always(Use::step, fmt::format("slot{}.inputs", slot), kStepScalarsBytes, Pool::pinned);
      always(Use::step, fmt::format("slot{}.state", slot), kStepScalarsBytes, Pool::pinned);
      always(Use::step, fmt::format("slot{}.batch", slot), one * count, Pool::pinned);
    }
  }

  // What blocks compute and their backward needs.
  void blocks() {
    for (const BlockTensor& tensor : block_tensors(config_, config_.microbatch)) {
      if (config_.offload) {
        offloaded_tensor(tensor);
      } else {
        kept_tensor(tensor);
      }
      shared_tensor(tensor);
    }
    const std::int64_t width = rows_ * shape().d_model;
    // The residual stream after the last block, and what a branch adds to it, from its end to the
    // next norm.
    add(Use::working, "x.final", width * residual_, head_tick(), head_tick());
    add(Use::working, "branch", width * low_, forward(0), head_tick());
    // A block that makes its middle again makes the first branch again.
    const auto input_only = [](Keep keep) { return keep == Keep::input; };
    const auto first = std::ranges::find_if(mask_, input_only);
    if (first == mask_.end()) return;
    const auto last = std::find_if(mask_.rbegin(), mask_.rend(), input_only);
    add(Use::working, "b.branch", width * low_, again(mask_.rend() - last - 1),
        backward(first - mask_.begin()));
  }

  bool is_kept(std::int64_t layer, std::string_view part) const {
    return keeps(mask_[static_cast<std::size_t>(layer)], part);
  }

  void kept_tensor(const BlockTensor& tensor) {
    for (std::int64_t layer = 0; layer < shape().n_layers; ++layer) {
      if (!is_kept(layer, tensor.part)) continue;
      // The embedding writes the first block's input.
      const bool embedded = layer == 0 && tensor.part == "x";
      add(Use::kept, block_buffer(mask_, false, layer, tensor.part, Made::forward), tensor.bytes,
          embedded ? tick(ActionKind::forward, 0) : forward(layer), backward(layer));
    }
  }

  void offloaded_tensor(const BlockTensor& tensor) {
    std::array<bool, kRotatingSlots> is_there{};
    for (std::int64_t layer = 0; layer < shape().n_layers; ++layer) {
      if (!is_kept(layer, tensor.part)) continue;
      auto& there = is_there[static_cast<std::size_t>(slot_of(layer + 1))];
      if (!there) {
        always(Use::kept, block_buffer(mask_, true, layer, tensor.part, Made::forward),
               tensor.bytes);
      }
      there = true;
      if (leaves_device(layer + 1, shape().n_layers))
        always(Use::kept, host_buffer(layer, tensor.part), tensor.bytes, Pool::pinned);
    }
  }

  // For the blocks that do not keep it two, which they use in turn: in the forward pass, and in
  // the backward pass.
  void shared_tensor(const BlockTensor& tensor) {
    std::int64_t lowest = -1;
    std::int64_t highest = -1;
    for (std::int64_t layer = 0; layer < shape().n_layers; ++layer) {
      if (is_kept(layer, tensor.part)) continue;
      if (lowest < 0) lowest = layer;
      highest = layer;
    }
    if (lowest < 0) return;
    // The next norm, in the next block or the head, reads mid.
    const int read = highest + 1 < shape().n_layers ? forward(highest + 1) : head_tick();
    add(Use::working, fmt::format("f.{}", tensor.part), tensor.bytes, forward(lowest),
        tensor.part == "mid" ? read : forward(highest));
    add(Use::working, fmt::format("b.{}", tensor.part), tensor.bytes, again(highest),
        backward(lowest));
  }

  void head() {
    const int tick = head_tick();
    const std::int64_t chunk = std::min(head_chunk_rows(config_), rows_);
    add(Use::logits, "logits", chunk * model::padded_vocab(shape().vocab) * low_, tick, tick);
    add(Use::working, "final", rows_ * shape().d_model * low_, tick, tick);
    for (const char* row : {"mean", "rstd", "row_loss"})
      add(Use::working, row, rows_ * kF32, tick, tick);
  }

  void gradients() {
    const int first = head_tick();
    const int last = backward(0);
    const std::int64_t width = rows_ * shape().d_model;
    add(Use::working, "dx", width * residual_, first, tick(ActionKind::backward, 0));
    // What the products before the residual stream read of it.
    if (residual_ != low_) add(Use::working, "dx.low", width * low_, first + 1, last);
    add(Use::working, "dnorm",
        rows_ * std::max(shape().d_model, model::attention_width(shape())) * low_, first, last);
    // Not while logits exist.
    const int after_head = first + 1;
    add(Use::working, "dwide", rows_ * std::max(model::qkv_width(shape()), shape().ffn) * low_,
        after_head, last);
    add(Use::working, "row_sum", rows_ * shape().n_heads * kF32, after_head, last);
    add(Use::workspace, "partials", scratch_.partials, first, last);
    // Gradients of norms' parameters that are not trained fall out of the pass with dx.
    if (!config_.frozen.empty())
      add(Use::workspace, "discarded", 2 * shape().d_model * kF32, first, last);
  }

  const Config& config_;
  Scratch scratch_;
  std::int64_t low_;       // bytes of an activation
  std::int64_t residual_;  // bytes of an element of the residual stream
  std::int64_t rows_;      // tokens of the largest microbatch
  RecomputeMask mask_;
  Plan plan_;
};

}  // namespace

std::string block_buffer(const RecomputeMask& mask, bool offload, std::int64_t layer,
                         std::string_view part, Made made) {
  if (!keeps(mask[static_cast<std::size_t>(layer)], part))
    return fmt::format("{}.{}", made == Made::forward ? "f" : "b", part);
  return offload ? fmt::format("s{}.{}", slot_of(layer + 1), part)
                 : fmt::format("b{}.{}", layer, part);
}

std::string host_buffer(std::int64_t layer, std::string_view part) {
  return fmt::format("o{}.{}", layer, part);
}

std::vector<BlockTensor> block_tensors(const Config& config, std::int64_t sequences) {
  const model::Shape& shape = config.shape;
  const std::int64_t rows = sequences * config.seq_len;
  const std::int64_t low = bytes_of(compute_dtype(config.precision));
  const std::int64_t residual = rows * shape.d_model * bytes_of(residual_dtype(config));
  const std::int64_t statistic = rows * kF32;
  return {{"x", residual},
          {"norm1", rows * shape.d_model * low},
          {"mean1", statistic},
          {"rstd1", statistic},
          {"qkv", rows * model::qkv_width(shape) * low},
          {"attention", rows * model::attention_width(shape) * low},
          {"lse", rows * shape.n_heads * kF32},
          {"mid", residual},
          {"norm2", rows * shape.d_model * low},
          {"mean2", statistic},
          {"rstd2", statistic},
          {"up", rows * model::mlp_in_width(shape) * low},
          {"act", rows * shape.ffn * low}};
}

const Buffer& Plan::buffer(std::string_view name) const {
  for (const Buffer& candidate : buffers) {
    if (candidate.name == name) return candidate;
  }
  throw Error(ExitCode::internal, "memory plan", fmt::format("has no buffer {}", name));
}

std::int64_t Plan::device_bytes() const {
  return total_bytes() - pool_bytes[static_cast<std::size_t>(Pool::pinned)];
}

Plan plan(const Config& config) {
  return PlanBuilder(config).build();
}

}  // namespace tessera::memory
