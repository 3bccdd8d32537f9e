// SPDX-License-Identifier: Apache-2.0
// Collectives over Gloo's TCP transport, for ranks that are processes on CPUs.
//
// Gloo exists only as a shared library, so it is in a module beside the program, tessera-gloo.so,
// which is opened when it is needed. Only Gloo's messages are used: its own reductions know no
// bf16, and sum in an order that depends on the number of ranks.
//
// Each call begins with a small message to and from every rank that says what it calls. An
// all-reduce of up to kSmallBytes travels in it. A larger sum goes in pieces: each rank gets its
// part from every other rank, sums in rank order and, in an all-reduce, sends the sum to all, while
// the next piece is in flight. A collective is complete when it returns; registered memory is no
// faster than other memory.
//
// prepare allocates kScratchBytes and a little for each rank. Gloo itself allocates and frees some
// hundred bytes a message.
#pragma once

#include <filesystem>
#include <memory>

#include "trainer/comm/communicator.h"
#include "trainer/comm/gloo/options.h"
#include "trainer/launch/store.h"

namespace tessera::trainer {

// Returns the path of tessera-gloo.so in the folder of the running program.
std::filesystem::path gloo_module_path();

// Opens the module, which stays open until the program ends. Error(unsupported) if it cannot be
// opened or has another version; the error names it, the cause and the package that brings it.
const comm::GlooModule& open_gloo(const std::filesystem::path& module);

// Makes the communicator of rank `rank` of `size`, 2 to kMostGlooRanks. `store` outlives it: in
// prepare the ranks exchange their addresses there, and a rank that gives up says so there
// (Store::leave, "has aborted") unless another has failed before. Errors name the rank that the
// store lost first, with its reason.
std::unique_ptr<Communicator> gloo_communicator(const comm::GlooModule& module, int rank, int size,
                                                Store& store, GlooOptions options);

}  // namespace tessera::trainer
