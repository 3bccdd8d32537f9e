// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/data.h"

#include <algorithm>

#include "trainer/device/random.h"

namespace tessera::trainer {

namespace {

// Separates tokens from the initial parameters, whose random numbers have the same key.
constexpr std::uint32_t kTokenStream = 0x746f6b65;

}  // namespace

TokenSource synthetic_tokens(std::uint64_t seed, std::int64_t vocab) {
  return [seed, vocab](std::int64_t step, std::int64_t row, std::span<std::int32_t> tokens) {
    for (std::size_t i = 0; i < tokens.size(); i += 4) {
      const auto words = philox({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(row),
                                 static_cast<std::uint32_t>(step), kTokenStream},
                                {low_word(seed), high_word(seed)});
      for (std::size_t word = 0; word < std::min<std::size_t>(4, tokens.size() - i); ++word) {
        // Multiply and shift: each id is equally likely to within vocab / 2^32.
        tokens[i + word] =
            static_cast<std::int32_t>((words[word] * static_cast<std::uint64_t>(vocab)) >> 32);
      }
    }
  };
}

Loader::Loader(const memory::Config& config, TokenSource source)
    : source_(std::move(source)),
      seq_len_(config.seq_len),
      table_rows_(model::padded_vocab(config.shape.vocab)),
      row_(static_cast<std::size_t>(config.seq_len) + 1),
      cursor_(static_cast<std::size_t>(table_rows_)) {
  for (const std::int64_t sequences :
       memory::microbatches(config.device_batch, config.microbatch)) {
    layouts_.push_back(memory::batch_layout(config, sequences));
    begins_.push_back(elements_);
    elements_ += layouts_.back().elements;
  }
}

void Loader::fill(std::int64_t step, std::span<std::int32_t> batch) {
  std::int64_t row = 0;
  for (std::size_t i = 0; i < layouts_.size(); ++i) {
    const memory::BatchLayout& layout = layouts_[i];
    const auto part = batch.subspan(static_cast<std::size_t>(begins_[i]),
                                    static_cast<std::size_t>(layout.elements));
    for (std::int64_t begin = 0; begin < layout.rows; begin += seq_len_, ++row) {
      source_(step, row, row_);
      std::copy(row_.begin(), row_.end() - 1, part.begin() + layout.tokens + begin);
      std::copy(row_.begin() + 1, row_.end(), part.begin() + layout.targets + begin);
    }
    sort(layout, part);
  }
}

// A counting sort. It is stable, so equal tokens stay in the order of rows.
void Loader::sort(const memory::BatchLayout& layout, std::span<std::int32_t> part) {
  const auto tokens =
      part.subspan(static_cast<std::size_t>(layout.tokens), static_cast<std::size_t>(layout.rows));
  const auto order =
      part.subspan(static_cast<std::size_t>(layout.order), static_cast<std::size_t>(layout.rows));
  const auto starts = part.subspan(static_cast<std::size_t>(layout.starts),
                                   static_cast<std::size_t>(table_rows_) + 1);
  std::ranges::fill(starts, 0);
  for (const std::int32_t token : tokens) ++starts[static_cast<std::size_t>(token) + 1];
  for (std::size_t token = 0; token < cursor_.size(); ++token) {
    cursor_[token] = starts[token];
    starts[token + 1] += starts[token];
  }
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    const auto token = static_cast<std::size_t>(tokens[row]);
    order[static_cast<std::size_t>(cursor_[token]++)] = static_cast<std::int32_t>(row);
  }
}

}  // namespace tessera::trainer
