// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "lib/base/crc32.h"
#include "lib/base/error.h"
#include "lib/point/data_path.h"
#include "trainer/data/shuffle.h"

namespace tessera::trainer {

namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // bytes read at once; whole ids

std::int64_t sequences_of(const TokenFile& file, std::int64_t seq_len) {
  return (file.layout().tokens - 1) / seq_len;
}

// Returns the number of sequences that the run reads, repeated ones included.
std::int64_t rows_of(const DataUse& use) {
  std::int64_t rows = 0;
  return __builtin_mul_overflow(use.steps, use.global_batch, &rows)
             ? std::numeric_limits<std::int64_t>::max()
             : rows;
}

// Reads parts of a file and checks each id; keeps the CRC-32 of the parts that count for it.
class Check {
 public:
  Check(const TokenFile& file, std::int64_t vocab)
      : file_(file), vocab_(vocab), bytes_per_token_(file.layout().bytes_per_token) {}

  enum class Counts : bool { no, yes };

  void look(std::int64_t begin, std::int64_t tokens, Counts counts) {
    while (tokens > 0) {
      const std::int64_t part = std::min(tokens, kPiece / bytes_per_token_);
      bytes_.resize(static_cast<std::size_t>(part * bytes_per_token_));
      file_.fetch(begin, bytes_);
      file_.require_below(vocab_, begin, bytes_);
      if (counts == Counts::yes)
        crc_ = tessera::crc32({reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}, crc_);
      begin += part;
      tokens -= part;
    }
  }

  std::uint32_t crc32() const { return crc_; }

 private:
  const TokenFile& file_;
  std::int64_t vocab_;
  std::int64_t bytes_per_token_;
  std::vector<std::byte> bytes_;
  std::uint32_t crc_ = 0;
};

// Checks `pieces` pieces that are evenly spread: the first at the beginning of the file, the last
// at its end.
void look_at_pieces(Check& check, std::int64_t pieces, const TokenLayout& layout) {
  const std::int64_t length = kPiece / layout.bytes_per_token;
  const std::int64_t gaps = std::max<std::int64_t>(1, pieces - 1);
  const std::int64_t last = layout.tokens - length;
  for (std::int64_t i = 0; i < pieces; ++i)
    check.look(last / gaps * i + last % gaps * i / gaps, length, Check::Counts::yes);
}

void look_at_used(Check& check, std::int64_t sequences, const DataUse& use) {
  const std::int64_t rows = rows_of(use);
  // If the run reads at least half of the file, reading it in order is faster than in the run's
  // order.
  if (rows >= sequences / 2) return check.look(0, sequences * use.seq_len + 1, Check::Counts::no);
  const Shuffle shuffle(sequences, use.seed);
  for (std::int64_t row = 0; row < rows; ++row)
    check.look(shuffle.at(0, row) * use.seq_len, use.seq_len + 1, Check::Counts::no);
}

}  // namespace

DataFacts check_tokens(const TokenFile& file, const DataUse& use, std::int64_t read_whole) {
  const TokenLayout& layout = file.layout();
  const auto fault = [&](std::string_view what, std::string_view fix) {
    throw Error(ExitCode::failed, file.path().string(), what, fix);
  };
  if (layout.vocab > use.vocab) {
    fault(fmt::format("declares a vocabulary of {}, the model has {}", layout.vocab, use.vocab),
          "data and model need the same tokeniser");
  }
  if (layout.tokens <= use.seq_len) {
    fault(fmt::format("has {} tokens, a sequence of {} and its last target need {}", layout.tokens,
                      use.seq_len, use.seq_len + 1),
          "take a longer file or a smaller seq_len");
  }
  const std::int64_t sequences = sequences_of(file, use.seq_len);
  Check check(file, layout.vocab > 0 ? std::min(layout.vocab, use.vocab) : use.vocab);
  if (layout.tokens <= read_whole / layout.bytes_per_token) {
    check.look(0, layout.tokens, Check::Counts::yes);
  } else {
    look_at_pieces(check, read_whole / kPiece, layout);
    look_at_used(check, sequences, use);
  }
  return {.tokens = layout.tokens,
          .crc32 = check.crc32(),
          .epochs = static_cast<double>(use.steps) * static_cast<double>(use.global_batch) /
                    static_cast<double>(sequences)};
}

TokenSource file_tokens(std::shared_ptr<const TokenFile> file, const DataUse& use) {
  const std::int64_t sequences = sequences_of(*file, use.seq_len);
  return [file = std::move(file), use, sequences, shuffle = Shuffle(sequences, use.seed)](
             std::int64_t step, std::int64_t row, std::span<std::int32_t> tokens) {
    const std::int64_t number = (step - 1) * use.global_batch + row;
    const std::int64_t sequence = shuffle.at(number / sequences, number % sequences);
    file->read(sequence * use.seq_len, tokens, use.vocab);
  };
}

RunData open_data(const sweep::Point& point) {
  RunData data;
  if (!sweep::names_file(point.data)) {
    data.tokens = synthetic_tokens(point.seed, point.model.vocab);
    return data;
  }
  const DataUse use{.vocab = point.model.vocab,
                    .seq_len = point.seq_len,
                    .global_batch = point.global_batch,
                    .steps = point.steps,
                    .seed = point.seed};
  auto file = std::make_shared<const TokenFile>(point.data);
  data.file = check_tokens(*file, use);
  data.tokens = file_tokens(std::move(file), use);
  return data;
}

}  // namespace tessera::trainer
