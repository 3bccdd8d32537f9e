// The decoder's forward and backward as sequences of operations, for any device and any shape: norm
// before each branch, everything else as model::Shape says.
#pragma once

#include "trainer/model/memory.h"
#include "trainer/model/pass.h"

namespace tessera::trainer {

// The operations of one action of the schedule that computes: forward, head, recompute, backward.
void emit_compute(const Pass& pass, memory::ActionKind kind);

// Initial values: parameters from counter-based random numbers keyed by (seed, parameter), so equal
// for every split and device; gradients, moments and gaps 0; the low-precision weights.
Sequence initial_operations(const Memory& memory, std::uint64_t seed);

// The low-precision weights from the master ones; empty in f32.
Sequence cast_operations(const Memory& memory);

}  // namespace tessera::trainer
