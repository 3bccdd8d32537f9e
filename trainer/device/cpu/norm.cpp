// SPDX-License-Identifier: Apache-2.0
// Norms, and the reductions over rows that give gradients of biases and gains. Each part of the
// rows (parts.h) is summed in f32 (f64) row by row, then the parts in order: the bits do not depend
// on the number of threads.
//
// Rounded once: sum and y; dsum; dgain and dbias, to f32. The sum of a wide residual stream is f32.
#include "trainer/device/cpu/operations.h"
#include "trainer/device/cpu/typed.h"
#include "trainer/device/parts.h"

namespace tessera::trainer::cpu {
namespace {

// out (+)= the sum of `parts` rows of n elements, in f32 (f64).
template <class C>
void sum_parts(const StorageKernels<C>& kernels, const C* partials, std::int64_t parts,
               const Tensor& out, bool accumulate) {
  constexpr std::int64_t kColumns = 256;
  const std::int64_t n = out.cols;
#pragma omp parallel for schedule(static)
  for (std::int64_t block = 0; block < (n + kColumns - 1) / kColumns; ++block) {
    const std::int64_t begin = block * kColumns;
    const std::int64_t count = std::min(kColumns, n - begin);
    C sums[kColumns] = {};
    for (std::int64_t part = 0; part < parts; ++part) {
      kernels.add_to(partials + part * n + begin, sums, count);
    }
    kernels.store(sums, nullptr, elements<C>(out) + begin, count, accumulate);
  }
}

// Calls f.operator()<R, S>(): R is the storage type of the residual stream and the parameters, S
// that of the branches.
template <class F>
void with_norm_storage(DType residual, DType branch, F&& f) {
  with_storage(branch, [&]<class S>() {
    if (residual == branch) {
      f.template operator()<S, S>();
    } else {
      f.template operator()<Compute<S>, S>();
    }
  });
}

// The kernels for storage types R and S.
template <class R, class S>
auto norm_forward(const StorageKernels<S>& kernels) {
  if constexpr (std::is_same_v<R, S>) {
    return kernels.norm_forward;
  } else {
    return kernels.norm_forward_wide;
  }
}
template <class R, class S>
auto norm_backward(const StorageKernels<S>& kernels) {
  if constexpr (std::is_same_v<R, S>) {
    return kernels.norm_backward;
  } else {
    return kernels.norm_backward_wide;
  }
}

}  // namespace

void run(const BiasGrad& op, const Context& context) {
  with_storage(op.dy.dtype, [&]<class S>() {
    using C = Compute<S>;
    const auto& kernels = storage<S>(context.kernels);
    C* partials = elements<C>(op.partials);
    const std::int64_t n = op.dy.cols;
    const std::int64_t parts = row_parts(op.dy.rows);
#pragma omp parallel for schedule(static)
    for (std::int64_t part = 0; part < parts; ++part) {
      C* sums = partials + part * n;
      std::fill_n(sums, n, C(0));
      for (std::int64_t r = part_begin(op.dy.rows, part); r < part_begin(op.dy.rows, part + 1);
           ++r) {
        kernels.add_to(row<S>(op.dy, r), sums, n);
      }
    }
    sum_parts<C>(storage<C>(context.kernels), partials, parts, op.dbias, op.accumulate);
  });
}

void run(const NormForward& op, const Context& context) {
  with_norm_storage(op.x.dtype, op.y.dtype, [&]<class R, class S>() {
    using C = Compute<S>;
    const auto norm = norm_forward<R>(storage<S>(context.kernels));
    const bool layernorm = op.kind == model::Norm::layernorm;
#pragma omp parallel for schedule(static)
    for (std::int64_t r = 0; r < op.x.rows; ++r) {
      norm({row<R>(op.x, r), row<S>(op.add, r), row<R>(op.sum, r), row<S>(op.y, r),
            row<R>(op.gain, 0), row<R>(op.bias, 0), layernorm ? elements<C>(op.mean) + r : nullptr,
            elements<C>(op.rstd) + r, op.x.cols, static_cast<C>(op.eps)});
    }
  });
}

void run(const NormBackward& op, const Context& context) {
  with_norm_storage(op.sum.dtype, op.dy.dtype, [&]<class R, class S>() {
    using C = Compute<S>;
    const auto norm = norm_backward<R>(storage<S>(context.kernels));
    const bool layernorm = op.kind == model::Norm::layernorm;
    const std::int64_t n = op.sum.cols;
    const std::int64_t rows = op.sum.rows;
    const std::int64_t parts = row_parts(rows);
    C* gains = elements<C>(op.partials);
    C* biases = op.dbias ? gains + parts * n : nullptr;
#pragma omp parallel for schedule(static)
    for (std::int64_t part = 0; part < parts; ++part) {
      C* dgain = gains + part * n;
      C* dbias = op.dbias ? biases + part * n : nullptr;
      std::fill_n(dgain, n, C(0));
      if (op.dbias) std::fill_n(dbias, n, C(0));
      for (std::int64_t r = part_begin(rows, part); r < part_begin(rows, part + 1); ++r) {
        norm({row<S>(op.dy, r), row<R>(op.dsum_in, r), row<R>(op.sum, r), row<R>(op.gain, 0),
              row<R>(op.dsum, r), layernorm ? elements<C>(op.mean) + r : nullptr,
              elements<C>(op.rstd) + r, dgain, dbias, n});
      }
    }
    const auto& plain = storage<C>(context.kernels);
    sum_parts<C>(plain, gains, parts, op.dgain, op.accumulate);
    if (op.dbias) sum_parts<C>(plain, biases, parts, op.dbias, op.accumulate);
  });
}

}  // namespace tessera::trainer::cpu
