// The tokens of a step, and what the embedding's backward needs to know of their order.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lib/memory/plan.h"

namespace tessera::trainer {

// Fills `tokens` (seq_len + 1 of them: every position has a target) with sequence `row` of the
// global batch of `step`. Must not allocate. Tokens are in [0, vocab).
using TokenSource =
    std::function<void(std::int64_t step, std::int64_t row, std::span<std::int32_t> tokens)>;

// Uniform random tokens, keyed by (seed, step, row): the same batch for every split and device.
TokenSource synthetic_tokens(std::uint64_t seed, std::int64_t vocab);

// Lays out the microbatches of a step as lib/memory/plan.h's batch_layout says, one after another.
class Loader {
 public:
  Loader(const memory::Config& config, TokenSource source);

  // `batch`: elements() long. Allocates nothing.
  void fill(std::int64_t step, std::span<std::int32_t> batch);

  std::int64_t elements() const { return elements_; }
  // Of microbatch i: where it begins in the batch, how long it is.
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
  std::vector<std::int32_t> cursor_;  // by token
};

}  // namespace tessera::trainer
