// SPDX-License-Identifier: Apache-2.0
#include "lib/point/memory_need.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "lib/memory/plan.h"

namespace tessera::sweep {

namespace {

constexpr double kGib = 1 << 30;

std::int64_t device_batch(const Point& point) {
  return point.global_batch / point.gpus;
}

// All that the need depends on, as bytes.
class Key {
 public:
  Key& add(std::int64_t value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    text_.append(bytes, sizeof value);
    return *this;
  }
  Key& add(std::string_view value) {
    text_ += value;
    text_ += '\n';
    return *this;
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

// Settings that a rank's memory does not depend on, and those that the key has otherwise. Any other
// is in it.
constexpr std::string_view kApart[] = {
    "global_batch", "microbatch_size", "attention",   "nodes",      "gpu",  "cluster", "threads",
    "steps",        "warmup",          "exact_steps", "fused_gelu", "data", "seed"};

template <std::size_t I>
void add_setting(Key& key, const Point& point) {
  constexpr const auto& field = std::get<I>(kFields);
  using T = std::decay_t<decltype(field.in(point))>;
  if constexpr (is_setting<T> && std::ranges::find(kApart, field.key) == std::end(kApart)) {
    if constexpr (std::is_same_v<T, std::string>) {
      key.add(std::string_view(field.in(point)));
    } else {
      key.add(static_cast<std::int64_t>(field.in(point)));
    }
  }
}

}  // namespace

memory::Config memory_config(const Point& point, std::int64_t microbatch) {
  return {.shape = point.model,
          .seq_len = point.seq_len,
          .device_batch = device_batch(point),
          .microbatch = std::min(microbatch, device_batch(point)),
          .precision = point.precision,
          .mixed_precision = point.mixed_precision,
          .checkpointing = point.activation_checkpointing,
          .mask = memory::recompute_mask(point.activation_checkpointing, point.model.n_layers,
                                         point.checkpointing_blocks),
          .offload = point.activation_cpu_offload,
          .fused_gelu = point.fused_gelu,
          .world = point.gpus,
          .sharding = point.sharding_strategy,
          .hybrid_group = point.hybrid_group,
          .target = {.is_gpu = point.gpu != "cpu",
                     .deterministic = point.deterministic,
                     .threads = static_cast<int>(std::max<std::int64_t>(1, point.threads))}};
}

memory::Config memory_config(const Point& point) {
  return memory_config(point, point.microbatch_size);
}

std::int64_t gpu_capacity(double memory_gib, double reserve_gib) {
  return gpu_bytes(memory_gib - reserve_gib);
}

std::int64_t gpu_bytes(double gib) {
  return static_cast<std::int64_t>(gib * kGib);
}

std::int64_t cpu_capacity(std::int64_t machine_bytes) {
  return machine_bytes / 10 * 9;
}

std::string gib_text(std::int64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / kGib);
}

std::string MemoryNeeds::key(const Point& point, std::int64_t microbatch) {
  const model::Shape& shape = point.model;
  Key all;
  for (const std::int64_t value :
       {shape.d_model, shape.n_layers, shape.n_heads, shape.n_kv_heads, shape.head_dim, shape.ffn,
        shape.vocab, static_cast<std::int64_t>(shape.positions),
        static_cast<std::int64_t>(shape.activation), static_cast<std::int64_t>(shape.biases.qkv),
        static_cast<std::int64_t>(shape.biases.out), static_cast<std::int64_t>(shape.biases.mlp),
        static_cast<std::int64_t>(shape.biases.norm), static_cast<std::int64_t>(shape.tied)})
    all.add(value);
  all.add(microbatch);
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (add_setting<I>(all, point), ...);
  }(std::make_index_sequence<kFieldCount>());
  // A GPU's part of a step's batch lies in the host's memory.
  if (point.gpu == "cpu") all.add(point.threads).add(device_batch(point));
  return all.take();
}

std::int64_t MemoryNeeds::bytes(const Point& point, std::int64_t microbatch) {
  const auto [known, is_new] = known_.try_emplace(key(point, microbatch), 0);
  if (is_new) {
    const memory::Plan plan = memory::plan(memory_config(point, microbatch));
    known->second = point.gpu == "cpu" ? plan.total_bytes() : plan.device_bytes();
  }
  return known->second;
}

std::int64_t MemoryNeeds::largest_microbatch(const Point& point, std::int64_t capacity) {
  std::int64_t fits = 0;
  std::int64_t too_large = device_batch(point) + 1;
  // Powers of two first: the largest that fits is small more often than not.
  for (std::int64_t size = 1; size < too_large; size *= 2) {
    if (bytes(point, size) > capacity) {
      too_large = size;
    } else {
      fits = size;
    }
  }
  while (fits + 1 < too_large) {
    const std::int64_t middle = fits + (too_large - fits) / 2;
    (bytes(point, middle) <= capacity ? fits : too_large) = middle;
  }
  return fits;
}

}  // namespace tessera::sweep
