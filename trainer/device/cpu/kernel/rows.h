// SPDX-License-Identifier: Apache-2.0
// Kernels with reductions over a row: norms and the loss.
#pragma once

#include "trainer/device/cpu/kernel/math.h"

namespace tessera::trainer::cpu {
namespace {

template <class R, class S>
void norm_forward(const NormRow<R, S>& row) {
  using C = Compute<S>;
  using V = Vector<C>;
  const C inverse_n = C(1) / static_cast<C>(row.n);
  const R* x = row.x;
  V total = {};
  if (row.add != nullptr) {
    for_vectors<C>(row.n, [&](std::int64_t i, int count) __attribute__((always_inline)) {
      const V sum = rounded<R>(load(row.x + i, count) + load(row.add + i, count));
      store(row.sum + i, sum, count);
      total += sum;
    });
    x = row.sum;
  } else if (row.mean != nullptr) {
    for_vectors<C>(row.n, [&](std::int64_t i, int count)
                              __attribute__((always_inline)) { total += load(x + i, count); });
  }
  const C mean = row.mean != nullptr ? sum_lanes<C>(total) * inverse_n : C(0);
  // The variance takes a second pass over the row, which is in the cache: a difference of large
  // sums would cancel.
  V squares = {};
  for_vectors<C>(row.n, [&](std::int64_t i, int count) __attribute__((always_inline)) {
    const V centred = first_lanes<C>(load(x + i, count) - mean, count);
    squares += centred * centred;
  });
  const C variance = sum_lanes<C>(squares) * inverse_n + row.eps;
  C rstd;
  if constexpr (sizeof(C) == sizeof(float)) {
    rstd = 1 / __builtin_sqrtf(variance);
  } else {
    rstd = 1 / __builtin_sqrt(variance);
  }
  if (row.mean != nullptr) *row.mean = mean;
  *row.rstd = rstd;
  for_vectors<C>(row.n, [&](std::int64_t i, int count) __attribute__((always_inline)) {
    V y = (load(x + i, count) - mean) * rstd * load(row.gain + i, count);
    if (row.bias != nullptr) y += load(row.bias + i, count);
    store(row.y + i, y, count);
  });
}

// With h = (sum - mean) rstd and g = dy gain: gradient = rstd (g - mean(g) - h mean(g h)), without
// mean(g) for RMSNorm.
template <class R, class S>
void norm_backward(const NormBackwardRow<R, S>& row) {
  using C = Compute<S>;
  using V = Vector<C>;
  const C inverse_n = C(1) / static_cast<C>(row.n);
  const C mean = row.mean != nullptr ? *row.mean : C(0);
  const C rstd = *row.rstd;
  V sum_g = {};
  V sum_gh = {};
  for_vectors<C>(row.n, [&](std::int64_t i, int count) __attribute__((always_inline)) {
    const V dy = load(row.dy + i, count);
    const V h = (load(row.sum + i, count) - mean) * rstd;  // unused lanes have dy = 0
    const V g = dy * load(row.gain + i, count);
    sum_g += g;
    sum_gh += g * h;
    store(row.dgain + i, load(row.dgain + i, count) + dy * h, count);
    if (row.dbias != nullptr) store(row.dbias + i, load(row.dbias + i, count) + dy, count);
  });
  const C mean_g = row.mean != nullptr ? sum_lanes<C>(sum_g) * inverse_n : C(0);
  const C mean_gh = sum_lanes<C>(sum_gh) * inverse_n;
  for_vectors<C>(row.n, [&](std::int64_t i, int count) __attribute__((always_inline)) {
    const V h = (load(row.sum + i, count) - mean) * rstd;
    const V g = load(row.dy + i, count) * load(row.gain + i, count);
    V dsum = rstd * (g - mean_g - h * mean_gh);
    if (row.dsum_in != nullptr) dsum += load(row.dsum_in + i, count);
    store(row.dsum + i, dsum, count);
  });
}

template <class S>
Compute<S> cross_entropy(S* logits, std::int64_t vocab, std::int64_t cols, std::int64_t target,
                         Compute<S> factor) {
  using C = Compute<S>;
  using V = Vector<C>;
  V largest = broadcast(-static_cast<C>(__builtin_inf()));
  for_vectors<C>(vocab, [&](std::int64_t i, int count) __attribute__((always_inline)) {
    V x = load(logits + i, count);
    for (int lane = count; lane < kLanes<C>; ++lane) x[lane] = x[0];
    largest = x > largest ? x : largest;
  });
  const C maximum = max_lanes<C>(largest);
  // The exponentials stay in the row if that loses nothing; otherwise they are computed again.
  constexpr bool kKept = sizeof(S) == sizeof(C);
  V sums = {};
  const C at_target = load(logits + target, 1)[0] - maximum;
  for_vectors<C>(vocab, [&](std::int64_t i, int count) __attribute__((always_inline)) {
    const V power = exp(load(logits + i, count) - maximum);
    if constexpr (kKept) store(logits + i, power, count);
    sums += first_lanes<C>(power, count);
  });
  const C sum = sum_lanes<C>(sums);
  const C log_sum = static_cast<C>(__builtin_log(static_cast<double>(sum)));
  const C scale = factor / sum;
  for_vectors<C>(vocab, [&](std::int64_t i, int count) __attribute__((always_inline)) {
    const V power = kKept ? V(load(logits + i, count)) : exp(load(logits + i, count) - maximum);
    store(logits + i, power * scale, count);
  });
  // The target's element comes from the exact logit, not from the rounded one.
  V difference = (exp(broadcast(at_target)) / sum - 1) * factor;
  store(logits + target, difference, 1);
  for_vectors<C>(cols - vocab, [&](std::int64_t i, int count) __attribute__((always_inline)) {
    store(logits + vocab + i, V{}, count);
  });
  return log_sum - at_target;
}

}  // namespace
}  // namespace tessera::trainer::cpu
