// Sums and maxima over a warp and over a block, each in one fixed order.
#pragma once

#include "trainer/device/cuda/simt.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {

struct Sum {
  template <class T>
  SIMT_FUNCTION T operator()(T a, T b) const {
    return a + b;
  }
};
// NaN if either is: a maximum that hides one would hide it in the loss.
struct Max {
  SIMT_FUNCTION float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};

// Of all lanes, in every lane.
template <class T, class Combine>
SIMT_FUNCTION T warp_reduce(T value, Combine combine) {
  SIMT_UNROLL
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2)
    value = combine(value, shuffle_xor(value, lanes));
  return value;
}

// Of all kThreads threads, in every thread; `none` changes nothing. Float2 in a row may share the
// scratch, since the first sync() comes after the use before.
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
