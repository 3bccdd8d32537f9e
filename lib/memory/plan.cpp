#include "lib/memory/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/base/error.h"

namespace tessera::memory {

namespace {

constexpr std::int64_t kChunkRows = 128;
constexpr std::int64_t kLogitsBytes = std::int64_t{128} << 20;

class PlanBuilder {
 public:
  PlanBuilder(const Config& config, const Scratch& scratch)
      : config_(config),
        scratch_(scratch),
        low_(bytes_of(compute_dtype(config.precision))),
        rows_(config.microbatch * config.seq_len),
        mask_(mask_of(config)) {
    plan_.actions = schedule(config.shape, 1, mask_);
  }

  Plan build() {
    states();
    batch();
    inputs_of_blocks();
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
  int backward_begin() const { return head_tick() + 1; }
  int head_tick() const { return tick(ActionKind::head, 0); }

  void add(std::string name, std::int64_t bytes, int first, int last, Pool pool = Pool::device) {
    plan_.buffers.push_back(
        {.name = std::move(name), .pool = pool, .bytes = bytes, .first = first, .last = last});
  }
  void always(std::string name, std::int64_t bytes, Pool pool = Pool::device) {
    add(std::move(name), bytes, 0, end(), pool);
  }

  // Weights, gradients that accumulate, moments.
  void states() {
    const std::vector<Unit> all = units(shape(), config_.seq_len);
    for (std::size_t unit = 0; unit < all.size(); ++unit) {
      const std::int64_t elements = all[unit].trained.elements;
      for (const char* kind : {"master", "grad", "m", "v"})
        always(fmt::format("u{}.{}", unit, kind), elements * bytes_of(DType::f32));
      if (config_.precision != Precision::fp32)
        always(fmt::format("u{}.param", unit), elements * low_);
    }
    always("inputs", scratch_.step_inputs);
    always("state", scratch_.step_state);
    always("workspace", scratch_.workspace);
    const int norm = tick(ActionKind::norm, 0);
    add("norm_partials", scratch_.norm_partials, norm, norm);
  }

  void batch() {
    const std::int64_t one =
        batch_layout(config_, config_.microbatch).elements * bytes_of(DType::i32);
    add("batch", one, 0, tick(ActionKind::backward, 0));
    const auto count =
        static_cast<std::int64_t>(microbatches(config_.device_batch, config_.microbatch).size());
    for (int slot = 0; slot < kSlots; ++slot) {
      always(fmt::format("slot{}.inputs", slot), scratch_.step_inputs, Pool::pinned);
      always(fmt::format("slot{}.state", slot), scratch_.step_state, Pool::pinned);
      always(fmt::format("slot{}.batch", slot), one * count, Pool::pinned);
    }
  }

  // The residual stream before each block and after the last. Kept under every mask.
  void inputs_of_blocks() {
    const std::int64_t bytes = rows_ * shape().d_model * low_;
    for (std::int64_t layer = 0; layer < shape().n_layers; ++layer) {
      const int first = layer == 0 ? tick(ActionKind::forward, 0) : forward(layer);
      add(fmt::format("x.{}", layer), bytes, first, backward(layer));
    }
    add(fmt::format("x.{}", shape().n_layers), bytes, head_tick(), head_tick());
  }

  // What blocks compute and their backward needs.
  void blocks() {
    const std::int64_t norm = rows_ * shape().d_model * low_;
    const std::int64_t statistic = rows_ * bytes_of(DType::f32);
    block_tensor("norm1", norm);
    block_tensor("mean1", statistic);
    block_tensor("rstd1", statistic);
    block_tensor("qkv", rows_ * model::qkv_width(shape()) * low_);
    block_tensor("attention", rows_ * model::attention_width(shape()) * low_);
    block_tensor("lse", rows_ * shape().n_heads * bytes_of(DType::f32));
    block_tensor("mid", norm);
    block_tensor("norm2", norm);
    block_tensor("mean2", statistic);
    block_tensor("rstd2", statistic);
    block_tensor("up", rows_ * model::mlp_in_width(shape()) * low_);
    block_tensor("act", rows_ * shape().ffn * low_);
    // What a branch adds to the residual stream, from its end to the next norm.
    add("branch", norm, forward(0), head_tick());
    // A block that makes its middle again makes the first branch again.
    const auto input_only = [](Keep keep) { return keep == Keep::input; };
    const auto first = std::ranges::find_if(mask_, input_only);
    if (first == mask_.end()) return;
    const auto last = std::find_if(mask_.rbegin(), mask_.rend(), input_only);
    add("b.branch", norm, again(mask_.rend() - last - 1), backward(first - mask_.begin()));
  }

  // A buffer for each block that keeps it; for all others two, which they use in turn: in the
  // forward pass, and in the backward pass.
  void block_tensor(const std::string& part, std::int64_t bytes) {
    std::int64_t lowest = -1;
    std::int64_t highest = -1;
    for (std::int64_t layer = 0; layer < shape().n_layers; ++layer) {
      if (keeps(mask_[static_cast<std::size_t>(layer)], part)) {
        add(block_buffer(mask_, layer, part, Made::forward), bytes, forward(layer),
            backward(layer));
        continue;
      }
      if (lowest < 0) lowest = layer;
      highest = layer;
    }
    if (lowest < 0) return;
    // The next norm, in the next block or the head, reads mid.
    const int read = highest + 1 < shape().n_layers ? forward(highest + 1) : head_tick();
    add("f." + part, bytes, forward(lowest), part == "mid" ? read : forward(highest));
    add("b." + part, bytes, again(highest), backward(lowest));
  }

  void head() {
    const int tick = head_tick();
    const std::int64_t chunk = std::min(head_chunk_rows(config_), rows_);
    add("logits", chunk * model::padded_vocab(shape().vocab) * low_, tick, tick);
    add("final", rows_ * shape().d_model * low_, tick, tick);
    for (const char* row : {"mean", "rstd", "row_loss"})
      add(row, rows_ * bytes_of(DType::f32), tick, tick);
  }

  void gradients() {
    const int first = head_tick();
    const int last = backward(0);
    add("dx", rows_ * shape().d_model * low_, first, tick(ActionKind::backward, 0));
    add("dnorm", rows_ * std::max(shape().d_model, model::attention_width(shape())) * low_, first,
        last);
    // Not while logits exist.
    const int after_head = backward_begin();
    add("dwide", rows_ * std::max(model::qkv_width(shape()), shape().ffn) * low_, after_head, last);
    add("row_sum", rows_ * shape().n_heads * bytes_of(DType::f32), after_head, last);
    add("partials", scratch_.partials, first, last);
  }

  const Config& config_;
  const Scratch& scratch_;
  std::int64_t low_;   // bytes of an activation
  std::int64_t rows_;  // tokens of the largest microbatch
  RecomputeMask mask_;
  Plan plan_;
};

}  // namespace

RecomputeMask mask_of(const Config& config) {
  return config.mask.empty() ? recompute_mask(config.checkpointing, config.shape.n_layers)
                             : config.mask;
}

std::string block_buffer(const RecomputeMask& mask, std::int64_t layer, std::string_view part,
                         Made made) {
  if (keeps(mask[static_cast<std::size_t>(layer)], part)) return fmt::format("b{}.{}", layer, part);
  return fmt::format("{}.{}", made == Made::forward ? "f" : "b", part);
}

std::vector<std::int64_t> microbatches(std::int64_t device_batch, std::int64_t microbatch) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(device_batch / microbatch), microbatch);
  if (device_batch % microbatch != 0) sizes.push_back(device_batch % microbatch);
  return sizes;
}

DType compute_dtype(Precision precision) {
  return precision == Precision::fp32 ? DType::f32 : DType::bf16;
}

std::int64_t head_chunk_rows(const Config& config) {
  const std::int64_t rows = config.microbatch * config.seq_len;
  const std::int64_t row_bytes =
      model::padded_vocab(config.shape.vocab) * bytes_of(compute_dtype(config.precision));
  const auto round_up = [](std::int64_t n) {
    return (n + kChunkRows - 1) / kChunkRows * kChunkRows;
  };
  const std::int64_t most =
      std::max(kChunkRows, kLogitsBytes / row_bytes / kChunkRows * kChunkRows);
  const std::int64_t chunks = (rows + most - 1) / most;
  return round_up((rows + chunks - 1) / chunks);
}

BatchLayout batch_layout(const Config& config, std::int64_t sequences) {
  const auto round_up = [](std::int64_t n) {
    constexpr std::int64_t kElements = kBufferAlignment / bytes_of(DType::i32);
    return (n + kElements - 1) / kElements * kElements;
  };
  BatchLayout layout;
  layout.rows = sequences * config.seq_len;
  const std::int64_t part = round_up(layout.rows);
  layout.targets = part;
  layout.order = 2 * part;
  layout.starts = 3 * part;
  layout.elements = layout.starts + round_up(model::padded_vocab(config.shape.vocab) + 1);
  return layout;
}

const Buffer& Plan::buffer(std::string_view name) const {
  for (const Buffer& candidate : buffers) {
    if (candidate.name == name) return candidate;
  }
  throw Error(ExitCode::internal, "memory plan", fmt::format("has no buffer {}", name));
}

Plan plan(const Config& config, const Scratch& scratch) {
  return PlanBuilder(config, scratch).build();
}

}  // namespace tessera::memory
