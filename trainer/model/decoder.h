// SPDX-License-Identifier: Apache-2.0
// The decoder's forward and backward passes as sequences of operations, for any device and any
// shape: pre-norm blocks, everything else as model::Shape says.
#pragma once

#include "trainer/model/memory.h"
#include "trainer/model/pass.h"

namespace tessera::trainer {

// Emits the operations of a schedule's action that computes: forward, head, recompute, backward.
void emit_compute(const Pass& pass, memory::ActionKind kind);

// Returns the operations that set initial values: parameters from counter-based random numbers
// keyed by (seed, parameter), so equal for every split and device; zero gradients, moments and
// gaps; the low-precision weights.
Sequence initial_operations(const Memory& memory, std::uint64_t seed);

// Returns the operations that cast master weights to low-precision ones; empty in f32.
Sequence cast_operations(const Memory& memory);

}  // namespace tessera::trainer
