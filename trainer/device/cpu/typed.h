// SPDX-License-Identifier: Apache-2.0
// Dispatch from a tensor's dtype to the types and kernels of its elements.
#pragma once

#include <algorithm>
#include <utility>

#include "trainer/device/cpu/kernels.h"
#include "trainer/device/ops.h"

namespace tessera::trainer::cpu {

template <class S>
const StorageKernels<S>& storage(const Kernels& kernels) {
  if constexpr (std::is_same_v<S, float>) {
    return kernels.f32;
  } else if constexpr (std::is_same_v<S, Bf16>) {
    return kernels.bf16;
  } else {
    return kernels.f64;
  }
}

template <class C>
const ComputeKernels<C>& compute(const Kernels& kernels) {
  if constexpr (std::is_same_v<C, float>) {
    return kernels.compute32;
  } else {
    return kernels.compute64;
  }
}

// Calls f.operator()<S>() with the storage type of `dtype`, a floating one (check has seen to
// that).
template <class F>
void with_storage(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f.template operator()<float>();
    case DType::bf16:
      return f.template operator()<Bf16>();
    case DType::f64:
      return f.template operator()<double>();
    case DType::i32:
      return;
  }
}

template <class T>
T* elements(const Tensor& t) {
  return static_cast<T*>(t.data);
}

// Null if the tensor is absent.
template <class T>
T* row(const Tensor& t, std::int64_t i) {
  return t ? elements<T>(t) + i * t.ld : nullptr;
}

// The unit of work of element-wise operations: at most kBlock columns of a tensor's rows. A flat
// buffer is one row. kBlock is a multiple of every vector, so that no block but the last has a
// tail.
inline constexpr std::int64_t kBlock = 8192;

// Calls f(row, first column, columns) for all blocks, in parallel.
template <class F>
void for_blocks(std::int64_t rows, std::int64_t cols, F&& f) {
  const std::int64_t blocks = (cols + kBlock - 1) / kBlock;
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < rows * blocks; ++i) {
    const std::int64_t begin = i % blocks * kBlock;
    f(i / blocks, begin, std::min(kBlock, cols - begin));
  }
}

}  // namespace tessera::trainer::cpu
