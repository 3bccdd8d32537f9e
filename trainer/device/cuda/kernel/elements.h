// SPDX-License-Identifier: Apache-2.0
// Elements of tensors in registers: typed rows, vectorized loads and stores, and grid-stride loops
// over vectors of eight elements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/simt.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {

// Elements of a thread's vector: one 16-byte access of bf16, two of f32.
inline constexpr int kVecSize = 8;

SIMT_FUNCTION float to_float(float x) {
  return x;
}

template <class T>
SIMT_FUNCTION T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    return to_bf16(x);
  }
}

// A vector as it lies in memory. In bf16 it takes half the registers of its unpacked elements.
template <class T>
struct Packed {
  static constexpr int kVec4s = sizeof(T) * kVecSize / sizeof(Vec4);
  Vec4 vec4s[kVec4s];
};
template <class T>
SIMT_FUNCTION Packed<T> load_packed(const T* from) {
  Packed<T> raw;
  SIMT_UNROLL
  for (int i = 0; i < Packed<T>::kVec4s; ++i)
    raw.vec4s[i] = load_vec4(from + i * (kVecSize / Packed<T>::kVec4s));
  return raw;
}
// Copies a vector asynchronously to shared memory, and load_shared() loads it from there: its
// 16-byte word i lies at to[i * stride]. cp_async_commit() ends the thread's group of copies.
template <class T>
SIMT_FUNCTION void cp_async_packed(Vec4* to, int stride, const T* from) {
  SIMT_UNROLL
  for (int i = 0; i < Packed<T>::kVec4s; ++i)
    cp_async(to + i * stride, from + i * (kVecSize / Packed<T>::kVec4s));
}
template <class T>
SIMT_FUNCTION Packed<T> load_shared(const Vec4* from, int stride) {
  Packed<T> raw;
  SIMT_UNROLL
  for (int i = 0; i < Packed<T>::kVec4s; ++i) raw.vec4s[i] = from[i * stride];
  return raw;
}
template <class T>
SIMT_FUNCTION void store_packed(T* to, const Packed<T>& raw) {
  SIMT_UNROLL
  for (int i = 0; i < Packed<T>::kVec4s; ++i)
    store_vec4(to + i * (kVecSize / Packed<T>::kVec4s), raw.vec4s[i]);
}
SIMT_FUNCTION void unpack(const Packed<float>& from, float (&to)[kVecSize]) {
  SIMT_UNROLL
  for (int i = 0; i < kVecSize; ++i) to[i] = as_float(from.vec4s[i / 4].at[i % 4]);
}
SIMT_FUNCTION void unpack(const Packed<Bf16>& from, float (&to)[kVecSize]) {
  SIMT_UNROLL
  for (int i = 0; i < kVecSize; ++i) {
    const std::uint32_t word = from.vec4s[0].at[i / 2];
    to[i] = as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000U);
  }
}
// Rounds each element once.
template <class T>
SIMT_FUNCTION Packed<T> pack(const float (&from)[kVecSize]) {
  Packed<T> raw;
  SIMT_UNROLL
  for (int i = 0; i < 4 * Packed<T>::kVec4s; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      raw.vec4s[i / 4].at[i % 4] = as_bits(from[i]);
    } else {
      raw.vec4s[0].at[i] = static_cast<std::uint32_t>(to_bf16(from[2 * i]).bits) |
                           static_cast<std::uint32_t>(to_bf16(from[2 * i + 1]).bits) << 16;
    }
  }
  return raw;
}

// Loads a vector. kVectorized: by 16-byte loads, all of it. Otherwise element by element, at most
// `remaining` of them: the tail is 0.
template <bool kVectorized, class T>
SIMT_FUNCTION void load(const T* from, std::int64_t remaining, float (&to)[kVecSize]) {
  if constexpr (kVectorized) {
    unpack(load_packed(from), to);
  } else {
    SIMT_UNROLL
    for (int i = 0; i < kVecSize; ++i) to[i] = i < remaining ? to_float(from[i]) : 0.0F;
  }
}

// Stores a vector, or its first `remaining` elements. Rounds each element once to the dtype of
// `to`.
template <bool kVectorized, class T>
SIMT_FUNCTION void store(T* to, std::int64_t remaining, const float (&from)[kVecSize]) {
  if constexpr (kVectorized) {
    store_packed(to, pack<T>(from));
  } else {
    SIMT_UNROLL
    for (int i = 0; i < kVecSize; ++i) {
      if (i < remaining) to[i] = from_float<T>(from[i]);
    }
  }
}

// A vector whose load is in flight. Packed vectors take few registers, so that the loads of several
// are issued before the first is used. A vector that was not fetched is 0.
template <bool kVectorized, class T>
struct Prefetched {
  Packed<T> raw = {};
  SIMT_FUNCTION void fetch(const T* from, std::int64_t /*remaining*/) { raw = load_packed(from); }
  SIMT_FUNCTION void get(float (&to)[kVecSize]) const { unpack(raw, to); }
};
template <class T>
struct Prefetched<false, T> {
  float value[kVecSize] = {};
  SIMT_FUNCTION void fetch(const T* from, std::int64_t remaining) {
    load<false>(from, remaining, value);
  }
  SIMT_FUNCTION void get(float (&to)[kVecSize]) const {
    SIMT_UNROLL
    for (int i = 0; i < kVecSize; ++i) to[i] = value[i];
  }
};

// Rounds each element as if the vector were stored as T and loaded again.
template <class T>
SIMT_FUNCTION void round_to(float (&vec)[kVecSize]) {
  SIMT_UNROLL
  for (int i = 0; i < kVecSize; ++i) vec[i] = to_float(from_float<T>(vec[i]));
}

// A tensor as a kernel takes it: row pointers. Null if the tensor is absent.
template <class T>
struct Rows {
  T* data;
  std::int64_t ld;
  SIMT_FUNCTION T* row(std::int64_t i) const { return data + i * ld; }
  SIMT_FUNCTION explicit operator bool() const { return data != nullptr; }
};

// --- On the host.

template <class T>
Rows<T> rows_of(const Tensor& t) {
  return {static_cast<T*>(t.data), t.ld};
}

// Returns whether all the tensors that are present allow vectorized loads and stores.
inline bool is_vectorizable(std::initializer_list<const Tensor*> tensors) {
  constexpr std::int64_t kAccess = 16;
  return std::all_of(tensors.begin(), tensors.end(), [](const Tensor* t) {
    return !*t ||
           (t->cols % kVecSize == 0 && reinterpret_cast<std::uintptr_t>(t->data) % kAccess == 0 &&
            (t->rows == 1 || t->ld * bytes_of(t->dtype) % kAccess == 0));
  });
}

// Calls f.operator()<T>() with the storage type of a floating dtype.
template <class F>
void with_storage(DType dtype, F&& f) {
  if (dtype == DType::f32) {
    f.template operator()<float>();
  } else {
    f.template operator()<Bf16>();
  }
}

// Calls f.operator()<kVectorized>().
template <class F>
void with_vectorization(bool vectorizable, F&& f) {
  if (vectorizable) {
    f.template operator()<true>();
  } else {
    f.template operator()<false>();
  }
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// A grid-stride loop over the vectors of [rows, cols], and the grid that runs it.
struct GridStrideLoop {
  std::int64_t rows;
  std::int64_t cols;

  // Calls body(row, first column, remaining columns) for each vector of this thread. It divides
  // nothing: a 64-bit division takes longer than the memory access.
  template <int kThreads, class Body>
  SIMT_FUNCTION void each_vector(Body body) const {
    for (std::int64_t row = block_y(); row < rows; row += blocks_y()) {
      for (std::int64_t col = (block() * kThreads + thread()) * kVecSize; col < cols;
           col += blocks() * kThreads * kVecSize)
        body(row, col, cols - col);
    }
  }

  // The grid fills the GPU once. occupancy: blocks per multiprocessor; 0: as many as have 2048
  // threads.
  Grid grid(int threads, const Launch& where, int occupancy = 0) const {
    constexpr int kMaxThreadsPerMultiprocessor = 2048;
    const std::int64_t most = std::int64_t{where.multiprocessors} *
                              (occupancy > 0 ? occupancy : kMaxThreadsPerMultiprocessor / threads);
    // Rounds down: a block more than the GPU holds would run alone, as long as all the others did.
    const std::int64_t x =
        std::clamp<std::int64_t>(ceil_div(ceil_div(cols, kVecSize), threads), 1, most);
    constexpr std::int64_t kMaxY = 65535;
    const std::int64_t y = std::clamp<std::int64_t>(most / x, 1, std::min(rows, kMaxY));
    return {static_cast<unsigned>(x), static_cast<unsigned>(y)};
  }
};

// The loop over tensors of the first one's shape. It is one long row if no tensor has gaps between
// its rows.
inline GridStrideLoop grid_stride_loop(std::initializer_list<const Tensor*> tensors) {
  const Tensor& shape = **tensors.begin();
  const bool contiguous = std::all_of(tensors.begin(), tensors.end(), [](const Tensor* t) {
    return !*t || t->rows == 1 || t->ld == t->cols;
  });
  return contiguous ? GridStrideLoop{1, shape.rows * shape.cols}
                    : GridStrideLoop{shape.rows, shape.cols};
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
