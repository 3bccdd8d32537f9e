// SPDX-License-Identifier: Apache-2.0
// Operands of autotuning: sets of A, B, D, bias and an epilogue's pre, one after another in the
// trials' own memory, so that a launch finds nothing in the L2 cache that the launch before left
// there, as in a training step. Pure: no GPU in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trainer/device/cuda/gemm/gemm_shape.h"

namespace tessera::trainer::cuda {

struct GemmOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  const void* bias = nullptr;
  void* pre = nullptr;  // argument of an epilogue
};

// All sets together are at least this many times the L2 cache.
inline constexpr std::int64_t kGemmL2Multiple = 4;

// Bytes that the trials of a shape want. With less than gemm_set_bytes there are no trials.
std::int64_t gemm_trial_bytes(const GemmShape& shape, std::int64_t l2_bytes);
std::int64_t gemm_set_bytes(const GemmShape& shape);

// Returns as many sets as are wanted and fit. No two share a byte; each operand is aligned exactly
// as the shape says. memory: aligned to kGemmAlignment.
std::vector<GemmOperands> gemm_operand_sets(const GemmShape& shape, std::span<std::byte> memory,
                                            std::int64_t l2_bytes);

// Returns normal random numbers of the dtype (bf16 or f32) to fill memory with by repetition: a GPU
// runs faster on zeros than on real data. The period divides no usual row and is no multiple of
// one. Pairs of the bf16 numbers, read as f32, are normal numbers too.
std::vector<std::byte> gemm_random_numbers(DType dtype);

}  // namespace tessera::trainer::cuda
