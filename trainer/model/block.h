// SPDX-License-Identifier: Apache-2.0
// A decoder block: x -> x + attention(norm1(x)) = mid -> mid + mlp(norm2(mid)).
//
// The norm that follows a block (the next block's norm1 or the final norm) adds the block's branch
// to mid. So a block ends with its branch not yet added, and its kept input is that later sum, x.
#pragma once

#include "trainer/model/pass.h"

namespace tessera::trainer {

// Emits the forward pass of block `layer` (unit layer + 1): from mid and branch of the block before
// (the embedding for layer 0) to mid and branch of this one.
void block_forward(const Pass& pass, std::int64_t layer);

// Emits what block_forward computed and the block's mask does not keep. The operations are the same
// values, with three exceptions. A norm reads the sum that the forward pass stored, if that is
// kept, instead of adding again. The last GEMM is left out, because nobody needs its result. An
// activation that a GEMM's epilogue did is computed from the kept argument, which was rounded after
// the GEMM.
void block_recompute(const Pass& pass, std::int64_t layer);

// Emits the backward pass. dx: in, the gradient of the block's result; out, of its input, both of
// the residual stream. Writes gradients of all parameters.
void block_backward(const Pass& pass, std::int64_t layer);

// Returns the names of the residual stream's buffers: before the block, and the part of it that the
// next norm reads.
std::string block_input(const Memory& memory, std::int64_t layer);
std::string mid_name(const Memory& memory, std::int64_t layer);

}  // namespace tessera::trainer
