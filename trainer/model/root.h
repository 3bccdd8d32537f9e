// SPDX-License-Identifier: Apache-2.0
// The root unit: embedding before the blocks; final norm, head and loss after them.
#pragma once

#include "trainer/model/pass.h"

namespace tessera::trainer {

// Emits the embedding: tokens -> x.0.
void embed_forward(const Pass& pass);

// Emits the final norm, head and loss, forward and backward: from mid and branch of the last block
// to the loss, and back to dx, the gradient of their sum. Writes gradients of the head (a tied
// table gets the embedding's added later) and of the final norm. It works by chunks of rows, so the
// full logits never exist.
void head(const Pass& pass);

// Emits dx -> gradients of positions and of the table's embedding.
void embed_backward(const Pass& pass);

}  // namespace tessera::trainer
