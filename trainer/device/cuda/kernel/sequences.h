// Rows of a batch of sequences, and where in its sequence each is.
#pragma once

#include "trainer/device/cuda/simt.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {

// Row first, first + step, ...: each is of sequence `sequence` the row number `position`. Two
// divisions at the start, none a row.
class SequenceRows {
 public:
  SIMT_FUNCTION SequenceRows(std::int64_t first, std::int64_t step, std::int64_t seq)
      : row(first),
        sequence(first / seq),
        position(first % seq),
        step_(step),
        step_sequences_(step / seq),
        step_positions_(step % seq),
        seq_(seq) {}

  SIMT_FUNCTION void next() {
    row += step_;
    sequence += step_sequences_;
    position += step_positions_;
    if (position >= seq_) {
      position -= seq_;
      ++sequence;
    }
  }

  std::int64_t row;
  std::int64_t sequence;
  std::int64_t position;

 private:
  std::int64_t step_, step_sequences_, step_positions_, seq_;
};

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
