// SPDX-License-Identifier: Apache-2.0
// Warp and block reductions, each in one fixed order.
#pragma once

#include "trainer/device/cuda/simt.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {

struct Sum {
  template <class T>
  SIMT_FUNCTION T operator()(T a, T b) const {
    return a + b;
  }
};
// The maximum is NaN if either argument is: hiding a NaN here would hide it in the loss.
struct Max {
  SIMT_FUNCTION float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};

// Warp reduction by butterfly shuffles: every lane gets the result.
template <class T, class Combine>
SIMT_FUNCTION T warp_reduce(T value, Combine combine) {
  SIMT_UNROLL
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2)
    value = combine(value, shuffle_xor(value, lanes));
  return value;
}

// Block reduction over kThreads threads: every thread gets the result; `none` is the neutral
// element. Two calls in a row may share the scratch, because the first sync() of the second comes
// after the last read of the first.
template <int kThreads, class T, class Combine>
SIMT_FUNCTION T block_reduce(T value, T none, Combine combine) {
  constexpr int kWarps = kThreads / kWarpSize;
  SIMT_SHARED(T, warp_values, kWarps);
  value = warp_reduce(value, combine);
  sync();
  if (lane() == 0) warp_values[warp()] = value;
  sync();
  return warp_reduce(lane() < kWarps ? warp_values[lane()] : none, combine);
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
