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

// A pack as it is in memory: of bf16 half the registers that its elements take.
template <class T>
struct Raw {
  static constexpr int kWords = sizeof(T) * kPack / sizeof(Words);
  Words words[kWords];
};
template <class T>
SIMT_FUNCTION Raw<T> load_raw(const T* from) {
  Raw<T> raw;
  SIMT_UNROLL
  for (int i = 0; i < Raw<T>::kWords; ++i)
    raw.words[i] = load_words(from + i * (kPack / Raw<T>::kWords));
  return raw;
}
// To shared memory, and from there: word i of the pack at to[i * step]. A thread's group of copies
// ends with end_copies().
template <class T>
SIMT_FUNCTION void copy_raw_ahead(Words* to, int step, const T* from) {
  SIMT_UNROLL
  for (int i = 0; i < Raw<T>::kWords; ++i)
    copy_ahead(to + i * step, from + i * (kPack / Raw<T>::kWords));
}
template <class T>
SIMT_FUNCTION Raw<T> load_shared(const Words* from, int step) {
  Raw<T> raw;
  SIMT_UNROLL
  for (int i = 0; i < Raw<T>::kWords; ++i) raw.words[i] = from[i * step];
  return raw;
}
template <class T>
SIMT_FUNCTION void store_raw(T* to, const Raw<T>& raw) {
  SIMT_UNROLL
  for (int i = 0; i < Raw<T>::kWords; ++i)
    store_words(to + i * (kPack / Raw<T>::kWords), raw.words[i]);
}
SIMT_FUNCTION void unpack(const Raw<float>& from, float (&to)[kPack]) {
  SIMT_UNROLL
  for (int i = 0; i < kPack; ++i) to[i] = as_float(from.words[i / 4].at[i % 4]);
}
SIMT_FUNCTION void unpack(const Raw<Bf16>& from, float (&to)[kPack]) {
  SIMT_UNROLL
  for (int i = 0; i < kPack; ++i) {
    const std::uint32_t word = from.words[0].at[i / 2];
    to[i] = as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000U);
  }
}
// Rounds each element once.
template <class T>
SIMT_FUNCTION Raw<T> pack(const float (&from)[kPack]) {
  Raw<T> raw;
  SIMT_UNROLL
  for (int i = 0; i < 4 * Raw<T>::kWords; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      raw.words[i / 4].at[i % 4] = as_bits(from[i]);
    } else {
      raw.words[0].at[i] = static_cast<std::uint32_t>(to_bf16(from[2 * i]).bits) |
                           static_cast<std::uint32_t>(to_bf16(from[2 * i + 1]).bits) << 16;
    }
  }
  return raw;
}

// kPacked: whole packs at multiples of 16 bytes. Else element by element, `left` of them at most;
// the rest of the pack is 0.
template <bool kPacked, class T>
SIMT_FUNCTION void load(const T* from, std::int64_t left, float (&to)[kPack]) {
  if constexpr (kPacked) {
    unpack(load_raw(from), to);
  } else {
    SIMT_UNROLL
    for (int i = 0; i < kPack; ++i) to[i] = i < left ? to_float(from[i]) : 0.0F;
  }
}

// Rounds each element once to the dtype of `to`.
template <bool kPacked, class T>
SIMT_FUNCTION void store(T* to, std::int64_t left, const float (&from)[kPack]) {
  if constexpr (kPacked) {
    store_raw(to, pack<T>(from));
  } else {
    SIMT_UNROLL
    for (int i = 0; i < kPack; ++i) {
      if (i < left) to[i] = from_float<T>(from[i]);
    }
  }
}

// A pack on its way: several of them take few registers, and the loads of all are issued before the
// first is waited for. 0 where nothing was loaded.
template <bool kPacked, class T>
struct Fetched {
  Raw<T> raw = {};
  SIMT_FUNCTION void fetch(const T* from, std::int64_t /*left*/) { raw = load_raw(from); }
  SIMT_FUNCTION void get(float (&to)[kPack]) const { unpack(raw, to); }
};
template <class T>
struct Fetched<false, T> {
  float value[kPack] = {};
  SIMT_FUNCTION void fetch(const T* from, std::int64_t left) { load<false>(from, left, value); }
  SIMT_FUNCTION void get(float (&to)[kPack]) const {
    SIMT_UNROLL
    for (int i = 0; i < kPack; ++i) to[i] = value[i];
  }
};

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

  // blocks: that a multiprocessor holds at once; 0: as many as have 2048 threads.
  Grid grid(int threads, const Launch& where, int blocks = 0) const {
    constexpr int kThreadsHeld = 2048;
    const std::int64_t most =
        std::int64_t{where.multiprocessors} * (blocks > 0 ? blocks : kThreadsHeld / threads);
    // Rounded down: one block more than the GPU holds would run alone, as long as all the others.
    const std::int64_t x =
        std::clamp<std::int64_t>(ceil_div(ceil_div(cols, kPack), threads), 1, most);
    constexpr std::int64_t kMostY = 65535;
    const std::int64_t y = std::clamp<std::int64_t>(most / x, 1, std::min(rows, kMostY));
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
