// The root unit: embedding, and after the blocks the final norm, head and loss.
#pragma once

#include "trainer/model/pass.h"

namespace tessera::trainer {

// tokens -> x.0
void embed_forward(const Pass& pass);

// From mid and branch of the last block to the loss, and back to dx, the gradient of their sum; of
// parameters: the head's (of a tied table, to which the embedding's is added later) and the final
// norm's. By chunks of rows: the full logits never exist.
void head(const Pass& pass);

// dx -> gradient of positions, and what the embedding adds to the table's.
void embed_backward(const Pass& pass);

}  // namespace tessera::trainer
