// SPDX-License-Identifier: Apache-2.0
// The tokens of a step, and their order by id, which the embedding's backward needs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lib/memory/plan.h"

namespace tessera::trainer {

// Fills `tokens` with sequence `row` of the global batch of `step`: seq_len + 1 tokens, so that
// every position has a target. Tokens are in [0, vocab). Must not allocate.
using TokenSource =
    std::function<void(std::int64_t step, std::int64_t row, std::span<std::int32_t> tokens)>;

// Uniform random tokens, keyed by (seed, step, row): the same batch for every split and device.
TokenSource synthetic_tokens(std::uint64_t seed, std::int64_t vocab);

// Lays out the microbatches of a step one after another, as batch_layout of lib/memory/plan.h says.
class Loader {
 public:
  Loader(const memory::Config& config, TokenSource source);

  // Fills `batch`, which has elements() elements. Allocates nothing.
  void fill(std::int64_t step, std::span<std::int32_t> batch);

  std::int64_t elements() const { return elements_; }
  // Begin and length of microbatch i in the batch.
  std::int64_t begin(std::size_t i) const { return begins_[i]; }
  std::int64_t count(std::size_t i) const { return layouts_[i].elements; }
  std::size_t microbatches() const { return layouts_.size(); }

 private:
  void sort(const memory::BatchLayout& layout, std::span<std::int32_t> part);

  TokenSource source_;
  std::int64_t seq_len_;
  std::int64_t table_rows_;
  std::vector<memory::BatchLayout> layouts_;
  std::vector<std::int64_t> begins_;
  std::int64_t elements_ = 0;
  std::vector<std::int32_t> row_;     // seq_len + 1
  std::vector<std::int32_t> cursor_;  // next place of each token
};

}  // namespace tessera::trainer
