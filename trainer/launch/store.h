// Where ranks meet: a small key-value store that rank 0 serves over TCP. It carries addresses and
// reasons, a few kilobytes a run; tensors go through the Communicator.
//
// Meeting: rank 0 listens (on loopback if there is one node, else on the interfaces that
// TESSERA_INTERFACE or GLOO_SOCKET_IFNAME names, else on all), and the others learn its addresses
// and the token of this start, the first of these that applies:
//
//   `trainer --nproc`  by variables; rank 0 inherits the socket
//   torchrun           MASTER_ADDR:MASTER_PORT+1. Nothing secret is handed over: the token is made
//                      of run id and restart, which tells runs apart, but keeps nobody out
//   the run's folder   rendezvous.<attempt>.<restart>, with random bytes as the token: mode 0600,
//                      made whole by a rename, taken away when all have met or time is over
//
// Both sides prove that they know the token, by its keyed hash with the other's random bytes,
// before anything else is said (wire.h): what is left of an earlier start or of another job, and a
// stranger on the port, are refused and hold nobody up. A random token is in no log, argument or
// other file.
//
// Threads: all members may be called from any thread, and each rank has one thread of the store's.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/launch/place.h"

namespace tessera::trainer {

struct Lost {
  int rank = 0;
  std::string reason;  // what it said before it went, else "its connection ended", and its host
};

class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  // Leaves in peace, but during an exception as one that failed. Rank 0 waits up to 5 s for the
  // others to leave, then serves no more.
  virtual ~Store() = default;

  // Values are bytes, at most 64 KiB; keys at most 1 KiB. A key is set once, by whomever: a second
  // time is Error(internal). Error(comm_error) if rank 0 is gone.
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits until the key is there. Else Error(comm_error): after `limit`, naming the key, and at
  // once when a rank is lost or rank 0 is gone, naming the rank. A key that is there is also given
  // when a rank is lost.
  virtual std::string get(const std::string& key, std::chrono::milliseconds limit) = 0;

  // This rank failed and is about to leave: the others see it in lost() and in errors. Never throws
  // for what ails the connection.
  virtual void leave(const std::string& reason) = 0;
  // The first rank that failed or whose connection ended without a word, the same on all ranks. A
  // process that dies is noticed at once, a node that vanishes within 30 s, one that hangs never.
  virtual std::optional<Lost> lost() = 0;
};

struct StoreOptions {
  std::string run_dir;  // empty: none
  int attempt = 1;
  int restart = 0;
  std::chrono::milliseconds limit{300'000};  // for all ranks to come
};

// Meets the other ranks: returns when all have come. place.ranks > 1. Error(comm_error) after the
// limit, on all ranks the same: who has not come ("rank 3 of node 1 has not come"); where rank 0
// has not, what was tried to find it. Error(spec) where nothing says how to meet, or where rank 0
// knows this rank already or counts the ranks differently.
std::unique_ptr<Store> open_store(const Place& place, const StoreOptions& options,
                                  const Environment& variable);

}  // namespace tessera::trainer
