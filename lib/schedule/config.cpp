// SPDX-License-Identifier: Apache-2.0
#include "lib/schedule/config.h"

#include <algorithm>

#include "lib/base/numbers.h"

namespace tessera::memory {

namespace {

constexpr std::int64_t kChunkRows = 128;
constexpr std::int64_t kLogitsBytes = std::int64_t{128} << 20;

}  // namespace

bool can_fuse_gelu(const model::Shape& shape) {
  return shape.activation == model::Activation::gelu_tanh && shape.ffn % kGeluRowElements == 0;
}

bool fuses_gelu(const Config& config) {
  return config.fused_gelu && can_fuse_gelu(config.shape);
}

RecomputeMask mask_of(const Config& config) {
  return config.mask.empty() ? recompute_mask(config.checkpointing, config.shape.n_layers)
                             : config.mask;
}

std::int64_t shard_ranks(const Config& config) {
  if (config.world == 1 || config.sharding == Sharding::no_shard) return 1;
  return config.sharding == Sharding::hybrid_shard ? config.hybrid_group : config.world;
}

std::int64_t shard_elements(std::int64_t unit_elements, std::int64_t ranks) {
  return round_up((unit_elements + ranks - 1) / ranks, kParameterAlignment);
}

std::vector<std::int64_t> microbatches(std::int64_t device_batch, std::int64_t microbatch) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(device_batch / microbatch), microbatch);
  if (device_batch % microbatch != 0) sizes.push_back(device_batch % microbatch);
  return sizes;
}

DType compute_dtype(Precision precision) {
  return is_f32(precision) ? DType::f32 : DType::bf16;
}

DType residual_dtype(const Config& config) {
  return config.mixed_precision == MixedPrecision::full ? DType::f32
                                                        : compute_dtype(config.precision);
}

std::int64_t head_chunk_rows(const Config& config) {
  const std::int64_t rows = config.microbatch * config.seq_len;
  const std::int64_t row_bytes =
      model::padded_vocab(config.shape.vocab) * bytes_of(compute_dtype(config.precision));
  const std::int64_t most =
      std::max(kChunkRows, kLogitsBytes / row_bytes / kChunkRows * kChunkRows);
  const std::int64_t chunks = (rows + most - 1) / most;
  return round_up((rows + chunks - 1) / chunks, kChunkRows);
}

BatchLayout batch_layout(const Config& config, std::int64_t sequences) {
  constexpr std::int64_t kElements = 256 / bytes_of(DType::i32);  // parts begin at 256 bytes
  BatchLayout layout;
  layout.rows = sequences * config.seq_len;
  const std::int64_t part = round_up(layout.rows, kElements);
  layout.targets = part;
  layout.order = 2 * part;
  layout.starts = 3 * part;
  layout.elements =
      layout.starts + round_up(model::padded_vocab(config.shape.vocab) + 1, kElements);
  return layout;
}

}  // namespace tessera::memory
