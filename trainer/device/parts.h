// How sums over many rows or elements are cut, the same on every device: parts of a size that
// depends on the shape only, each summed by one thread or block, then added in order.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera::trainer {

// Parts of a sum over rows: at least 32 rows each, at most 64 parts.
constexpr std::int64_t row_parts(std::int64_t rows) {
  return std::clamp<std::int64_t>((rows + 31) / 32, 1, 64);
}

// First row of a part; parts are equal to one row.
constexpr std::int64_t part_begin(std::int64_t rows, std::int64_t part) {
  return rows * part / row_parts(rows);
}

// Elements of a part of SquaredNorm.
inline constexpr std::int64_t kSquaredNormPart = 1 << 16;

}  // namespace tessera::trainer
