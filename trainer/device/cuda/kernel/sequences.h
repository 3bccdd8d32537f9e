// Rows of a batch of sequences, and where in its sequence each is.
#pragma once

#include "trainer/device/cuda/simt.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {

// Row first, first + stride, ...: each is of sequence `sequence` the row number `position`. Float2
// divisions at the start, none a row.
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
