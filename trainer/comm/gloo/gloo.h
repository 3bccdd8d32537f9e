// Ranks that are processes, on CPUs: collectives over Gloo's TCP transport.
//
// Gloo exists only as a shared library, so it is in a module beside the program, tessera-gloo.so,
// that is opened when it is needed. Of Gloo only messages are used: its own reductions know no
// bf16, and sum in an order that depends on the number of ranks.
//
// Each call begins with a small message to and from every rank that says what it calls. An
// all-reduce of up to kSmallBytes travels in it. A larger sum goes in pieces: each rank gets its
// part of every other rank, sums in rank order and, in an all-reduce, sends the sum to all, while
// the next piece is on its way. A collective is complete when it returns; memory that is registered
// is no faster than other.
//
// Of the heap, prepare takes kScratchBytes and a little a rank. Gloo itself takes and frees some
// hundred bytes a message.
#pragma once

#include <filesystem>
#include <memory>

#include "trainer/comm/communicator.h"
#include "trainer/comm/gloo/options.h"
#include "trainer/launch/store.h"

namespace tessera::trainer {

// tessera-gloo.so in the folder of the running program.
std::filesystem::path gloo_module_path();

// Opens the module; what it is good for stays until the program ends. Error(unsupported) naming it,
// the cause and the package that brings it, where it cannot be opened or is of another version.
const comm::GlooModule& open_gloo(const std::filesystem::path& module);

// Of rank `rank` of `size`, 2 to kMostGlooRanks. `store` outlives it; the ranks exchange their
// addresses there in prepare, and there a rank that gives up says so (Store::leave, "has aborted")
// unless somebody has failed before. Errors name the rank that the store says was lost first, with
// its reason.
std::unique_ptr<Communicator> gloo_communicator(const comm::GlooModule& module, int rank, int size,
                                                Store& store, GlooOptions options);

}  // namespace tessera::trainer
