// From tensors to elements in registers: typed rows, and packs of eight elements that travel by 16
// bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/simt.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {

// Elements that a thread works on at once: 16 bytes of bf16, twice 16 of f32.
inline constexpr int kPack = 8;

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

// kPacked: whole packs at multiples of 16 bytes. Else element by element, `left` of them at most;
// the rest of the pack is 0.
template <bool kPacked>
SIMT_FUNCTION void load(const float* from, std::int64_t left, float (&to)[kPack]) {
  if constexpr (kPacked) {
    SIMT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const Words words = load_words(from + half * 4);
      SIMT_UNROLL
      for (int i = 0; i < 4; ++i) to[half * 4 + i] = as_float(words.at[i]);
    }
  } else {
    SIMT_UNROLL
    for (int i = 0; i < kPack; ++i) to[i] = i < left ? from[i] : 0.0F;
  }
}
template <bool kPacked>
SIMT_FUNCTION void load(const Bf16* from, std::int64_t left, float (&to)[kPack]) {
  if constexpr (kPacked) {
    const Words words = load_words(from);
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      to[2 * i] = as_float(words.at[i] << 16);
      to[2 * i + 1] = as_float(words.at[i] & 0xffff0000U);
    }
  } else {
    SIMT_UNROLL
    for (int i = 0; i < kPack; ++i) to[i] = i < left ? to_float(from[i]) : 0.0F;
  }
}

// Rounds each element once to the dtype of `to`.
template <bool kPacked>
SIMT_FUNCTION void store(float* to, std::int64_t left, const float (&from)[kPack]) {
  if constexpr (kPacked) {
    SIMT_UNROLL
    for (int half = 0; half < 2; ++half) {
      Words words;
      SIMT_UNROLL
      for (int i = 0; i < 4; ++i) words.at[i] = as_bits(from[half * 4 + i]);
      store_words(to + half * 4, words);
    }
  } else {
    SIMT_UNROLL
    for (int i = 0; i < kPack; ++i) {
      if (i < left) to[i] = from[i];
    }
  }
}
template <bool kPacked>
SIMT_FUNCTION void store(Bf16* to, std::int64_t left, const float (&from)[kPack]) {
  if constexpr (kPacked) {
    Words words;
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      words.at[i] = static_cast<std::uint32_t>(to_bf16(from[2 * i]).bits) |
                    static_cast<std::uint32_t>(to_bf16(from[2 * i + 1]).bits) << 16;
    }
    store_words(to, words);
  } else {
    SIMT_UNROLL
    for (int i = 0; i < kPack; ++i) {
      if (i < left) to[i] = to_bf16(from[i]);
    }
  }
}

// What comes back when the pack is stored as T and loaded again.
template <class T>
SIMT_FUNCTION void round_to(float (&pack)[kPack]) {
  SIMT_UNROLL
  for (int i = 0; i < kPack; ++i) pack[i] = to_float(from_float<T>(pack[i]));
}

// A tensor as a kernel takes it: null for an absent one.
template <class T>
struct Rows {
  T* data;
  std::int64_t ld;
  SIMT_FUNCTION T* row(std::int64_t i) const { return data + i * ld; }
  SIMT_FUNCTION explicit operator bool() const { return data != nullptr; }
};

// On the host.

template <class T>
Rows<T> rows_of(const Tensor& t) {
  return {static_cast<T*>(t.data), t.ld};
}

// Whether all the tensors that are there can be read and written by whole packs.
inline bool is_packed(std::initializer_list<const Tensor*> tensors) {
  constexpr std::int64_t kAccess = 16;
  return std::all_of(tensors.begin(), tensors.end(), [](const Tensor* t) {
    return !*t ||
           (t->cols % kPack == 0 && reinterpret_cast<std::uintptr_t>(t->data) % kAccess == 0 &&
            (t->rows == 1 || t->ld * bytes_of(t->dtype) % kAccess == 0));
  });
}

// f.operator()<T>() with the storage type of a floating dtype.
template <class F>
void with_storage(DType dtype, F&& f) {
  if (dtype == DType::f32) {
    f.template operator()<float>();
  } else {
    f.template operator()<Bf16>();
  }
}

// f.operator()<kPacked>().
template <class F>
void with_packing(bool packed, F&& f) {
  if (packed) {
    f.template operator()<true>();
  } else {
    f.template operator()<false>();
  }
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Work on every pack of [rows, cols]: what each thread of a grid does, and the grid.
struct Packs {
  std::int64_t rows;
  std::int64_t cols;

  // body(row, first column, columns that are left) for the packs of this thread. No divisions: they
  // would take longer than the memory.
  template <int kThreads, class Body>
  SIMT_FUNCTION void each(Body body) const {
    for (std::int64_t row = block_y(); row < rows; row += blocks_y()) {
      for (std::int64_t col = (block() * kThreads + thread()) * kPack; col < cols;
           col += blocks() * kThreads * kPack)
        body(row, col, cols - col);
    }
  }

  Grid grid(int threads, const Launch& where) const {
    constexpr std::int64_t kThreadsHeld = 2048;  // by a multiprocessor
    const std::int64_t most = where.multiprocessors * (kThreadsHeld / threads);
    const std::int64_t x =
        std::clamp<std::int64_t>(ceil_div(ceil_div(cols, kPack), threads), 1, most);
    constexpr std::int64_t kMostY = 65535;
    const std::int64_t y = std::clamp<std::int64_t>(ceil_div(most, x), 1, std::min(rows, kMostY));
    return {static_cast<unsigned>(x), static_cast<unsigned>(y)};
  }
};

// Of tensors of the first's shape: one long row where no gap is between the rows of any.
inline Packs packs_of(std::initializer_list<const Tensor*> tensors) {
  const Tensor& shape = **tensors.begin();
  const bool contiguous = std::all_of(tensors.begin(), tensors.end(), [](const Tensor* t) {
    return !*t || t->rows == 1 || t->ld == t->cols;
  });
  return contiguous ? Packs{1, shape.rows * shape.cols} : Packs{shape.rows, shape.cols};
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
