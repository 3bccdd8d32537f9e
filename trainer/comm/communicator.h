// SPDX-License-Identifier: Apache-2.0
// Collectives over the ranks of a group: all-gather, reduce-scatter, all-reduce.
//
// Tensors are flat, [1, n] with n >= 1, f32 or bf16 (all_reduce_sum also f64). Shards have equal
// sizes: full holds size() of them, in rank order. A shard may be its own slice of full (in place);
// otherwise shard and full do not overlap. No two ranks give the same memory.
//
// Sums are ((x0 + x1) + x2) + ..., in f32 (f64 for f64), rounded once to nearest even when stored.
// A GPU's library may have another order and more roundings of its own. The bits are always the
// same for the same calls, and all_reduce_sum leaves the same bits on every rank. There are only
// sums: whoever wants a mean scales what is summed.
//
// Order: every rank makes the same calls (collective, dtype, size) in the same order. A
// communicator is one queue: its collectives run one after another whatever their streams, so two
// ranks that issue them in different orders would wait for each other.
//
// Streams: a collective comes after the work issued to `stream` before, and before the work issued
// to it afterwards. The call may return earlier. Until the stream has passed it, its tensors stay
// allocated, its inputs unchanged, and only work that waits for the stream may read its outputs.
//
// Errors: Error(internal) for a call that is wrong by itself. Error(comm_error) if ranks called
// different collectives, naming who called what, or if a rank failed, naming it; if collectives are
// asynchronous, poll tells it, and so does the next call. The communicator is then unusable: every
// later call throws the same. A call waits for the other ranks without a limit of its own.
//
// Threads: all calls of a communicator come from one thread, that of its prepare. Its destructor
// ends the rank's part: a rank that still calls or waits gets Error(comm_error). During an
// exception the destructor aborts.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "trainer/device/ops.h"

namespace tessera::trainer {

class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // 0 <= rank < size
  virtual int size() const = 0;

  // Connects, registers and allocates. It is itself a collective, called once before all others;
  // afterwards only an error allocates. registered: memory that most tensors lie in (the
  // communication pool), with the same sizes on every rank, alive as long as the communicator.
  // Other memory is allowed and may be slower.
  virtual void prepare(std::span<const std::span<std::byte>> registered) = 0;

  virtual void all_gather(Stream stream, Tensor shard, Tensor full) = 0;
  virtual void reduce_scatter_sum(Stream stream, Tensor full, Tensor shard) = 0;
  virtual void all_reduce_sum(Stream stream, Tensor tensor) = 0;  // in place

  // Returns what failed, naming the rank; nothing if nothing has failed. Never waits.
  virtual std::optional<std::string> poll() = 0;
  // Gives up on behalf of this rank: it releases the others, which get Error(comm_error) naming it.
  virtual void abort() = 0;
};

// A single rank: copies if shard and full differ, otherwise does nothing.
std::unique_ptr<Communicator> single_communicator();

}  // namespace tessera::trainer
