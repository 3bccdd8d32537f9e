// SPDX-License-Identifier: Apache-2.0
// Sums of exponentials without overflow, of values that come a few vectors at a time: the online
// softmax of attention and the loss (Milakov and Gimelshein 2018, arXiv:1805.02867).
#pragma once

#include "trainer/device/cuda/kernel/block.h"
#include "trainer/device/cuda/kernel/elements.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {

// e^x for x <= 0 by ex2.approx. Its relative error is 2e-7 (1 + |x|), small beside a sum that has
// an e^0 in it. exp() for every logit would take longer than the memory.
SIMT_FUNCTION float exponential(float x) {
  constexpr float kLog2E = 1.44269504F;
  return exp2_approx(x * kLog2E);
}

// The largest value so far, and the sum of e^(value - largest). A NaN or plus infinity among the
// values makes the sum NaN; minus infinity adds nothing.
struct SumOfExponentials {
  float largest = -INFINITY;
  float sum = 0;

  template <int kCount>
  SIMT_FUNCTION void add(const float (&value)[kCount]) {
    float most = largest;
    SIMT_UNROLL
    for (int i = 0; i < kCount; ++i) most = std::fmax(most, value[i]);
    float added = 0;
    SIMT_UNROLL
    for (int i = 0; i < kCount; ++i) added += exponential(value[i] - base_of(most));
    sum = sum * exponential(largest - base_of(most)) + added;
    largest = most;
  }

  // Block reduction: every thread gets the result.
  template <int kThreads>
  SIMT_FUNCTION SumOfExponentials block_reduce() const {
    SumOfExponentials all;
    all.largest = TESSERA_SIMT::block_reduce<kThreads>(largest, -INFINITY, Max());
    all.sum = TESSERA_SIMT::block_reduce<kThreads>(
        sum * exponential(largest - base_of(all.largest)), 0.0F, Sum());
    return all;
  }

  SIMT_FUNCTION double log() const {
    return static_cast<double>(largest) + std::log(static_cast<double>(sum));
  }

 private:
  // The value to subtract: finite even if only minus infinity has come.
  SIMT_FUNCTION static float base_of(float most) { return most == -INFINITY ? 0.0F : most; }
};

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
