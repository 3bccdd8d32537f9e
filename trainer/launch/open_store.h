// SPDX-License-Identifier: Apache-2.0
// How ranks find the store and each other.
//
// Rank 0 listens: on loopback if there is one node, otherwise on the interfaces that
// TESSERA_INTERFACE or GLOO_SOCKET_IFNAME names, otherwise on all. The others learn its addresses
// and the token of this start by the first of these that applies:
//
//   `trainer --nproc`  by variables; rank 0 inherits the socket
//   torchrun           MASTER_ADDR:MASTER_PORT+1. torchrun hands over no secret: the token is made
//                      of run id and restart, which tells runs apart but keeps nobody out
//   the run's folder   rendezvous.<attempt>.<restart>, with random bytes as the token: mode 0600,
//                      made whole by a rename, removed when all have met or time is over
//
// Before anything else is said, both sides prove that they know the token, by its keyed hash with
// the other's random bytes (wire.h). Ranks of an earlier start or of another job, and strangers on
// the port, are refused and hold nobody up. A random token is in no log, argument or other file.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "trainer/launch/place.h"
#include "trainer/launch/store.h"

namespace tessera::trainer {

struct StoreOptions {
  std::string run_dir;  // empty: none
  int attempt = 1;
  int restart = 0;
  std::chrono::milliseconds limit{300'000};  // for all ranks to come
};

// Meets the other ranks: returns when all have come. place.ranks > 1. Error(comm_error) after the
// limit, the same on all ranks: it names who has not come ("rank 3 of node 1 has not come") or, if
// that is rank 0, what was tried to find it. Error(spec) if nothing says how to meet, or if rank 0
// knows this rank already or counts the ranks differently.
std::unique_ptr<Store> open_store(const Place& place, const StoreOptions& options,
                                  const Environment& variable);

}  // namespace tessera::trainer
