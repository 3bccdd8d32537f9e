// A decoder block: x -> x + attention(norm1(x)) = mid -> mid + mlp(norm2(mid)).
//
// The residual sum after a block is made by the norm that follows it (the next block's norm1 or the
// final norm), so a block ends with its branch not yet added. Its kept input is that sum, x.
#pragma once

#include "trainer/model/pass.h"

namespace tessera::trainer {

// Of block `layer` (unit layer + 1). From mid and branch of the block before (the embedding for
// layer 0) to mid and branch of this one.
void block_forward(const Pass& pass, std::int64_t layer);

// What block_forward computed and the block's mask does not keep: the very same operation values,
// but for norms, which read the sum that the forward pass stored where that is kept, instead of
// making it again, for the last product, whose result nobody needs, and for an activation that a
// product did: it is made from the argument that is kept, which was rounded after the product.
void block_recompute(const Pass& pass, std::int64_t layer);

// dx: in, gradient of the block's result; out, of its input, both of the residual stream.
// Gradients of all parameters.
void block_backward(const Pass& pass, std::int64_t layer);

// Buffers of the residual stream: before the block, and the part of it that the next norm reads.
std::string block_input(const Memory& memory, std::int64_t layer);
std::string mid_name(const Memory& memory, std::int64_t layer);

}  // namespace tessera::trainer
