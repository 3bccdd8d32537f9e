// Collectives over the ranks of one group: how their parameters and gradients meet.
//
// Tensors are flat, [1, n] with n >= 1, f32 or bf16 (all_reduce_sum also f64). Shards are equal in
// size: full holds size() of them, in rank order. A shard may be its own slice of full (in place);
// else shard and full do not overlap, and no memory is given by two ranks.
//
// Sums: ((x0 + x1) + x2) + ..., in f32 (f64 for f64), rounded once to nearest even when stored. A
// GPU's library may have another order and more roundings of its own; always are they the same for
// the same calls, and all_reduce_sum leaves the same bits on every rank. Nothing but sums:
// scaling is in what is summed.
//
// Order: every rank makes the same calls (collective, dtype, size) in the same order. One
// communicator is one queue: its collectives run one after the other whatever their streams, so two
// ranks that issue them in different orders would wait for each other.
//
// Streams: a collective comes after the work issued to `stream` before and before the work issued
// to it afterwards. The call may return earlier: until the stream has passed it, its tensors stay
// allocated, inputs unchanged, outputs unread but by work that waits for the stream.
//
// Errors: Error(internal) for a call that is wrong by itself. Error(comm_error) if ranks called
// different collectives, naming who called what, or if a rank failed, naming it; where collectives
// are asynchronous, poll tells it, and the next call. The communicator is then of no more use:
// every later call throws the same. A call waits for the other ranks without a limit of its own.
//
// Threads: all calls of one communicator come from one thread, that of its prepare. Its destruction
// ends the rank's part: a rank that still calls or waits gets Error(comm_error). During an
// exception it is an abort.
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

  // Once, before all collectives and itself one of them: connects, registers, allocates; afterwards
  // nothing is allocated but for an error. registered: memory that most tensors lie in (the
  // communication pool), the same sizes on every rank, alive as long as the communicator; other
  // memory is allowed and may be slower.
  virtual void prepare(std::span<const std::span<std::byte>> registered) = 0;

  virtual void all_gather(Stream stream, Tensor shard, Tensor full) = 0;
  virtual void reduce_scatter_sum(Stream stream, Tensor full, Tensor shard) = 0;
  virtual void all_reduce_sum(Stream stream, Tensor tensor) = 0;  // in place

  // What failed, naming the rank; nullopt: nothing so far. Never waits.
  virtual std::optional<std::string> poll() = 0;
  // This rank gives up: releases the others, which get Error(comm_error) naming it.
  virtual void abort() = 0;
};

// One rank alone: copies where shard and full differ, else does nothing.
std::unique_ptr<Communicator> single_communicator();

}  // namespace tessera::trainer
