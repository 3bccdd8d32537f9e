// SPDX-License-Identifier: Apache-2.0
// Sums over ranks in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/schedule/dtype.h"

namespace tessera::trainer::comm {

// Computes result[i] = ((sources[0][i] + sources[1][i]) + ...) for i < elements in f32 (f64 for
// f64), rounds once to nearest even, and stores it in each of `results`. dtype: f32, bf16 or f64. A
// result may be one of the sources; otherwise nothing overlaps. At least one source. Allocates
// nothing.
void sum_in_order(DType dtype, std::span<const std::byte* const> sources, std::int64_t elements,
                  std::span<std::byte* const> results);

}  // namespace tessera::trainer::comm
