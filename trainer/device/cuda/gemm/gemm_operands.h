// Where the operands of trial runs lie: sets of A, B, D, bias and an epilogue's pre behind one
// another in memory of the trials' own, so that a launch finds in the GPU's cache nothing that the
// one before left there, as in a step of training. Pure: no GPU in it.
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
  void* pre = nullptr;  // of an epilogue, which writes or reads it
};

// Of the sets that trials go round, together at least this often the size of the L2 cache.
inline constexpr std::int64_t kGemmL2Multiple = 4;

// Bytes that trials of a shape want; with less than gemm_set_bytes there are none.
std::int64_t gemm_trial_bytes(const GemmShape& shape, std::int64_t l2_bytes);
std::int64_t gemm_set_bytes(const GemmShape& shape);

// As many sets as are wanted and fit, no two of which share a byte, each operand aligned exactly
// as the shape says. memory: aligned to kGemmAlignment.
std::vector<GemmOperands> gemm_operand_sets(const GemmShape& shape, std::span<std::byte> memory,
                                            std::int64_t l2_bytes);

// Normal random numbers of that dtype (bf16 or f32) to fill memory with, by repeating them: zeros
// would let a GPU run faster than it does on real ones. The period is no divisor or multiple of any
// usual row. bf16 numbers in pairs, read as f32, are normal ones too.
std::vector<std::byte> gemm_random_numbers(DType dtype);

}  // namespace tessera::trainer::cuda
