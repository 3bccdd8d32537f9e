// SPDX-License-Identifier: Apache-2.0
// How sums over many rows or elements are cut, the same on every device: parts of a size that
// depends on the shape only, each summed by one thread or block, then added in order. So their
// scratch can be planned.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera::memory {

// Parts of a sum over rows: at least 16 rows each, and enough of them to occupy a large GPU, where
// a block sums one: at most 256.
constexpr std::int64_t row_parts(std::int64_t rows) {
  return std::clamp<std::int64_t>((rows + 15) / 16, 1, 256);
}

// First row of a part; parts are equal to one row.
constexpr std::int64_t part_begin(std::int64_t rows, std::int64_t part) {
  return rows * part / row_parts(rows);
}

// Elements of a part of a sum of squares.
inline constexpr std::int64_t kSquaredNormPart = 1 << 16;

// f32 elements of scratch for a bias gradient, and for a norm's gain and bias gradients together.
constexpr std::int64_t bias_grad_partials(std::int64_t rows, std::int64_t cols) {
  return row_parts(rows) * cols;
}
constexpr std::int64_t norm_partials(std::int64_t rows, std::int64_t cols) {
  return 2 * row_parts(rows) * cols;
}

// f64 elements of scratch for a sum of squares.
constexpr std::int64_t squared_norm_partials(std::int64_t elements) {
  return (elements + kSquaredNormPart - 1) / kSquaredNormPart;
}

}  // namespace tessera::memory
