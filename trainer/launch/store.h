// SPDX-License-Identifier: Apache-2.0
// The store where ranks meet: a small key-value store that rank 0 serves over TCP. It carries
// addresses and reasons, a few kilobytes a run; tensors go through the Communicator.
//
// Threads: all members may be called from any thread. In each rank the store has one thread of its
// own.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace tessera::trainer {

struct Lost {
  int rank = 0;
  std::string reason;  // its last words or "its connection ended", and its host
};

class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  // Leaves in peace or, during an exception, as a rank that failed. Rank 0 waits up to 5 s for the
  // others to leave, then stops serving.
  virtual ~Store() = default;

  // Sets a key. Values are bytes, at most 64 KiB; keys have at most 1 KiB. Any rank may set a key,
  // but only once: a second time is Error(internal). Error(comm_error) if rank 0 is gone.
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits until the key is there and returns its value, even if a rank is lost. Otherwise
  // Error(comm_error): after `limit`, naming the key; at once if a rank is lost or rank 0 is gone,
  // naming the rank.
  virtual std::string get(const std::string& key, std::chrono::milliseconds limit) = 0;

  // Says that this rank failed and is about to leave: the others see it in lost() and in errors.
  // Never throws because of the connection.
  virtual void leave(const std::string& reason) = 0;
  // Returns the first rank that failed or whose connection ended without a word, the same one on
  // all ranks. A process that dies is noticed at once, a node that vanishes within 30 s, one that
  // hangs never.
  virtual std::optional<Lost> lost() = 0;
};

}  // namespace tessera::trainer
