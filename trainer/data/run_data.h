// SPDX-License-Identifier: Apache-2.0
// A run's data: its token source, opened and checked before step one.
//
// A token file (token_file.h) is read as sequences of seq_len + 1 tokens that begin at each
// multiple of seq_len: the last target of one is the first input of the next. What is left at the
// end of the file, less than a sequence, is not used. Sequences repeat in epochs, each with its own
// shuffled order (shuffle.h): sequence number n = (step - 1) x global_batch + row is at place n mod
// sequences of epoch n / sequences. So a row of a step depends on (seed, step, row, global_batch)
// alone: the global batch is the same for every number of ranks and every split in microbatches.
#pragma once

#include <memory>
#include <optional>

#include "lib/point/point.h"
#include "trainer/data/data.h"
#include "trainer/data/token_file.h"

namespace tessera::trainer {

// The part of a token file that a run needs.
struct DataUse {
  std::int64_t vocab = 0;  // of the model: every id is below it
  std::int64_t seq_len = 0;
  std::int64_t global_batch = 0;
  std::int64_t steps = 0;
  std::uint64_t seed = 17;
};

// The facts of a file that the records hold.
struct DataFacts {
  std::int64_t tokens = 0;  // of the whole file
  // CRC-32 of the tokens' bytes, without the header: of all of them in a file of up to kReadWhole,
  // otherwise of pieces of 1 MiB that are evenly spread over it, kReadWhole in all.
  std::uint32_t crc32 = 0;
  double epochs = 0;  // how many times the run reads the file
};

inline constexpr std::int64_t kReadWhole = std::int64_t{256} << 20;

// Checks the file before training. A file of up to `read_whole` bytes (whole MiB) is read
// completely; of a larger one it reads the pieces above and every sequence that the run will use.
// Error(failed) if the file has fewer tokens than a sequence, declares a larger vocabulary than the
// model's, or has an id that is not below both.
DataFacts check_tokens(const TokenFile& file, const DataUse& use,
                       std::int64_t read_whole = kReadWhole);

// Returns the source of a checked file. It keeps the file open.
TokenSource file_tokens(std::shared_ptr<const TokenFile> file, const DataUse& use);

struct RunData {
  TokenSource tokens;
  std::optional<DataFacts> file;  // nothing: synthetic
};

// Opens what the point names: synthetic tokens, or a file, which it checks.
RunData open_data(const sweep::Point& point);

}  // namespace tessera::trainer
