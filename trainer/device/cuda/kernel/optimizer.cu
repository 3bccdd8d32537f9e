// SPDX-License-Identifier: Apache-2.0
// Gradient norm, clipping and AdamW. Parts have a fixed size, so the bits do not depend on the GPU.
#include "trainer/device/cuda/kernel/block.h"
#include "trainer/device/cuda/kernel/elements.h"
#include "trainer/device/parts.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {
namespace {

constexpr int kPartThreads = 512;
constexpr int kFinishThreads = 1024;
constexpr int kUpdateThreads = 256;
constexpr int kUpdateOccupancy = 4;  // blocks that a multiprocessor has registers for

// A block sums kSquaredNormPart elements. Squares are f64: in f32 they would overflow from 1.8e19
// on.
template <bool kVectorized, class S>
SIMT_KERNEL(kPartThreads, 2)
void squared_norm(std::int64_t elements, const S* x, double* partials) {
  const std::int64_t begin = block() * kSquaredNormPart;
  const std::int64_t there = elements - begin;
  const std::int64_t count = there < kSquaredNormPart ? there : kSquaredNormPart;
  double sum[2] = {};
  for (std::int64_t i = thread() * kVecSize; i < count; i += kPartThreads * kVecSize) {
    float value[kVecSize];
    load<kVectorized>(x + begin + i, count - i, value);
    SIMT_UNROLL
    for (int k = 0; k < kVecSize; ++k) {
      const auto wide = static_cast<double>(value[k]);
      sum[k % 2] += wide * wide;
    }
  }
  const double all = block_reduce<kPartThreads>(sum[0] + sum[1], 0.0, Sum());
  if (thread() == 0) partials[block()] = all;
}

// Adds the partial sums in one block. norm and clip are rounded once, to f32.
template <int kThreads>
SIMT_KERNEL(kThreads)
void finish_norm(const double* partials, std::int64_t count, const StepInputs* in,
                 StepState* state) {
  double sum = 0;
  for (std::int64_t i = thread(); i < count; i += kThreads) sum += partials[i];
  sum = block_reduce<kThreads>(sum, 0.0, Sum());
  if (thread() != 0) return;
  const double norm = std::sqrt(sum);
  const auto limit = static_cast<double>(in->max_grad_norm);
  state->grad_norm = static_cast<float>(norm);
  state->clip = limit > 0 && norm > limit ? static_cast<float>(limit / norm) : 1.0F;
  state->not_finite = std::isfinite(state->loss) && std::isfinite(state->grad_norm) ? 0 : 1;
}

// AdamW's constants, passed by value.
struct Factors {
  float beta1, beta2, eps;
  std::int64_t decay_end;
};

// AdamW (Loshchilov and Hutter 2019): theta <- theta - lr (weight_decay theta + (m / bias1) /
// (sqrt(v / bias2) + eps)), all in f32. m, v and theta are rounded once each to f32, and theta once
// more to param. The approximate division and root have no branches, which would separate the
// loads.
template <bool kVectorized, class P>
SIMT_KERNEL(kUpdateThreads, kUpdateOccupancy)
void adamw(GridStrideLoop loop, Factors factors, const float* grad, float* master, float* m,
           float* v, P* param, const StepInputs* in, const StepState* state) {
  if (state->not_finite != 0) return;
  const float clip = state->clip;
  const float lr = in->lr;
  const float decayed = 1 - lr * in->weight_decay;
  const float inverse1 = 1 / in->bias1;
  const float inverse2 = 1 / in->bias2;
  loop.each_vector<kUpdateThreads>([&](std::int64_t, std::int64_t at, std::int64_t remaining) {
    float g[kVecSize];
    float theta[kVecSize];
    float m_now[kVecSize];
    float v_now[kVecSize];
    load<kVectorized>(grad + at, remaining, g);
    load<kVectorized>(master + at, remaining, theta);
    load<kVectorized>(m + at, remaining, m_now);
    load<kVectorized>(v + at, remaining, v_now);
    SIMT_UNROLL
    for (int i = 0; i < kVecSize; ++i) {
      g[i] *= clip;
      m_now[i] = m_now[i] * factors.beta1 + g[i] * (1 - factors.beta1);
      v_now[i] = v_now[i] * factors.beta2 + g[i] * g[i] * (1 - factors.beta2);
      const float update =
          divide_approx(m_now[i] * inverse1, sqrt_approx(v_now[i] * inverse2) + factors.eps);
      theta[i] = theta[i] * (at + i < factors.decay_end ? decayed : 1.0F) - update * lr;
    }
    store<kVectorized>(m + at, remaining, m_now);
    store<kVectorized>(v + at, remaining, v_now);
    store<kVectorized>(master + at, remaining, theta);
    if (param != nullptr) store<kVectorized>(param + at, remaining, theta);
  });
}

}  // namespace

void run(const SquaredNorm& op, const Launch& where) {
  static_assert(kSquaredNormPart % kVecSize == 0);  // each part of an aligned buffer is aligned
  const std::int64_t elements = op.x.rows * op.x.cols;
  Tensor flat = op.x;
  flat.rows = 1;
  flat.cols = flat.ld = elements;
  with_vectorization(is_vectorizable({&flat}), [&]<bool kVectorized>() {
    with_storage(op.x.dtype, [&]<class S>() {
      launch("squared_norm", squared_norm<kVectorized, S>,
             Grid{static_cast<unsigned>(squared_norm_partials(elements)), 1}, kPartThreads, where,
             elements, static_cast<const S*>(op.x.data), op.partials);
    });
  });
}

void run(const FinishNorm& op, const Launch& where) {
  launch("finish_norm", finish_norm<kFinishThreads>, Grid{1, 1}, kFinishThreads, where, op.partials,
         op.count, op.in, op.state);
}

void run(const AdamW& op, const Launch& where) {
  const GridStrideLoop loop{1, op.master.cols};
  const bool vectorizable = is_vectorizable({&op.grad, &op.master, &op.m, &op.v, &op.param});
  with_vectorization(vectorizable, [&]<bool kVectorized>() {
    with_storage(op.param ? op.param.dtype : DType::f32, [&]<class P>() {
      launch("adamw", adamw<kVectorized, P>, loop.grid(kUpdateThreads, where, kUpdateOccupancy),
             kUpdateThreads, where, loop, Factors{op.beta1, op.beta2, op.eps, op.decay_end},
             static_cast<const float*>(op.grad.data), static_cast<float*>(op.master.data),
             static_cast<float*>(op.m.data), static_cast<float*>(op.v.data),
             static_cast<P*>(op.param.data), op.in, op.state);
    });
  });
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
