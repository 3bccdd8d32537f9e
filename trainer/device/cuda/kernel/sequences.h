// SPDX-License-Identifier: Apache-2.0
// Rows of a batch of sequences, and the place of each within its sequence.
#pragma once

#include "trainer/device/cuda/simt.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {

// Iterates over rows first, first + stride, ...: `row` is row number `position` of sequence
// `sequence`. It divides twice at the start and never again.
class SequenceRows {
 public:
  SIMT_FUNCTION SequenceRows(std::int64_t first, std::int64_t stride, std::int64_t seq)
      : row(first),
        sequence(first / seq),
        position(first % seq),
        stride_(stride),
        stride_sequences_(stride / seq),
        stride_positions_(stride % seq),
        seq_(seq) {}

  SIMT_FUNCTION void next() {
    row += stride_;
    sequence += stride_sequences_;
    position += stride_positions_;
    if (position >= seq_) {
      position -= seq_;
      ++sequence;
    }
  }

  std::int64_t row;
  std::int64_t sequence;
  std::int64_t position;

 private:
  std::int64_t stride_, stride_sequences_, stride_positions_, seq_;
};

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
