// Where ranks meet: a small key-value store that rank 0 serves over TCP. It carries addresses and
// reasons, a few kilobytes a run; tensors go through the Communicator.
//
// Meeting: rank 0 listens on a free port (on loopback if there is one node) and publishes
// addresses, port and a random token: through the run's folder (rendezvous.<attempt>.<restart>,
// mode 0600, made whole by a rename, taken away at the end), or by an inherited socket (`trainer
// --nproc`), or on torchrun's MASTER_ADDR:MASTER_PORT+1. The others read that, and both sides prove
// that they know the token, by its hash with the other's random bytes: what is left of an earlier
// start, and a stranger on the port, are refused. The token is never in a log, in an argument or in
// another file.
//
// Threads: all members may be called from any thread. Rank 0 serves in a thread of its own.
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
  std::string reason;  // what it said before it went, else "its connection ended"
};

class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  // Rank 0: waits a moment for the others to leave, then serves no more.
  virtual ~Store() = default;

  // Values are bytes, at most 64 KiB. A key is set once. Error(comm_error) if rank 0 is gone.
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits until the key is there. Error(comm_error) after `limit`, naming the ranks that have never
  // come ("rank 3 of node 1 has not come") or, if all are here, the key; at once when a rank is
  // lost.
  virtual std::string get(const std::string& key, std::chrono::milliseconds limit) = 0;

  // This rank failed and is about to leave: the others see it in lost() and in errors.
  virtual void leave(const std::string& reason) = 0;
  // The first rank that failed or whose connection ended before all had left in peace.
  virtual std::optional<Lost> lost() = 0;
};

struct StoreOptions {
  std::string run_dir;  // empty: none
  int attempt = 1;
  int restart = 0;
  std::chrono::milliseconds limit{300'000};  // for all ranks to come
};

// Meets the other ranks: returns when all have come. place.ranks > 1. Error(comm_error) naming who
// is missing after the limit, Error(spec) where nothing says how to meet.
std::unique_ptr<Store> open_store(const Place& place, const StoreOptions& options,
                                  const Environment& variable);

}  // namespace tessera::trainer
