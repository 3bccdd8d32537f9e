// Where ranks meet: a small key-value store that rank 0 serves over TCP. It carries addresses and
// reasons, a few kilobytes a run; tensors go through the Communicator.
//
// Threads: all members may be called from any thread, and each rank has one thread of the store's.
#pragma once

#include <chrono>
#include <optional>
#include <string>

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

}  // namespace tessera::trainer
