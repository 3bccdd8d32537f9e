// The decoder's forward and backward as sequences of operations, for any device and any shape: norm
// before each branch, everything else as model::Shape says.
#pragma once

#include "trainer/model/memory.h"
#include "trainer/model/sequence.h"

namespace tessera::trainer {

// All operations of one microbatch of `sequences`, in the order of the schedule. `first`: of the
// step, gradients are set, else added to. Two calls with the same arguments give equal operations.
Sequence microbatch_operations(const Memory& memory, std::int64_t sequences, bool first);

// Initial values: parameters from counter-based random numbers keyed by (seed, parameter), so equal
// for every split and device; gradients, moments and gaps 0; the low-precision weights.
Sequence initial_operations(const Memory& memory, std::uint64_t seed);

// The low-precision weights from the master ones; empty in f32.
Sequence cast_operations(const Memory& memory);

// f32 elements of scratch that the bias and norm gradients of the microbatches need.
std::int64_t gradient_partials(const memory::Config& config);

}  // namespace tessera::trainer
