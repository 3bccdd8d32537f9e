// SPDX-License-Identifier: Apache-2.0
// Rotary positions (Su et al. 2021). Angles are f64; cosines and sines are rounded to the compute
// type. Rounded once: each element of q and k. Threads split positions: the cosines and sines of
// one serve every sequence and head.
#include <omp.h>

#include <cmath>

#include "trainer/device/cpu/operations.h"
#include "trainer/device/cpu/typed.h"

namespace tessera::trainer::cpu {
namespace {

// Scratch for cosines, sines and both halves of a head.
std::int64_t scratch_elements(const Rope& op) {
  return 2 * op.shape.head_dim;
}

template <class S>
void rotate_head(const StorageKernels<S>& io, S* head, std::int64_t half, const Compute<S>* cosine,
                 const Compute<S>* sine, Compute<S>* low, Compute<S>* high) {
  io.load(head, low, half);
  io.load(head + half, high, half);
  for (std::int64_t i = 0; i < half; ++i) {
    const Compute<S> a = low[i];
    const Compute<S> b = high[i];
    low[i] = a * cosine[i] - b * sine[i];
    high[i] = b * cosine[i] + a * sine[i];
  }
  io.store(low, nullptr, head, half, false);
  io.store(high, nullptr, head + half, half, false);
}

template <class S>
void rotate(const Rope& op, const Context& context) {
  using C = Compute<S>;
  const AttentionShape& s = op.shape;
  const auto& io = storage<S>(context.kernels);
  const std::int64_t half = s.head_dim / 2;
  const double direction = op.backward ? -1 : 1;
#pragma omp parallel for schedule(static)
  for (std::int64_t position = 0; position < s.seq; ++position) {
    C* cosine = reinterpret_cast<C*>(context.workspace.data()) +
                omp_get_thread_num() * scratch_elements(op);
    C* sine = cosine + half;
    C* low = sine + half;
    C* high = low + half;
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(position) *
          std::pow(op.theta, -2.0 * static_cast<double>(i) / static_cast<double>(s.head_dim));
      cosine[i] = static_cast<C>(std::cos(angle));
      sine[i] = static_cast<C>(direction * std::sin(angle));
    }
    for (std::int64_t sequence = 0; sequence < s.batch; ++sequence) {
      S* of_row = row<S>(op.qkv, sequence * s.seq + position);
      for (std::int64_t head = 0; head < s.q_heads + s.kv_heads; ++head)
        rotate_head<S>(io, of_row + head * s.head_dim, half, cosine, sine, low, high);
    }
  }
}

}  // namespace

std::int64_t rope_workspace_bytes(const Rope& op, int threads) {
  return threads * scratch_elements(op) * (op.qkv.dtype == DType::f64 ? 8 : 4);
}

void run(const Rope& op, const Context& context) {
  with_storage(op.qkv.dtype, [&]<class S>() { rotate<S>(op, context); });
}

}  // namespace tessera::trainer::cpu
