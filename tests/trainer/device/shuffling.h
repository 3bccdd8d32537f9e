// SPDX-License-Identifier: Apache-2.0
// Runs a schedule in any order that its events allow, on the calling thread. A schedule whose bits
// then differ from those at issue lacks a wait. The order is that of CUDA, as tracing.h describes
// it.
//
// From seal() on nothing runs when it is issued. Commands queue by stream until `host_wait`,
// `seconds` or `drain` needs them, and then run only as far as the record waited for. So a copy
// reads its source as late as a GPU might, and what the host reads without a wait is old. Before
// seal(), and for `allocate` and `prepare` always, everything goes straight to `inner`.
//
// If several streams could go on, the seed decides. 0 to 3: that stream (in the order of the
// enumeration) whenever it can. 4 to 7: that stream - 4 only when no other can. 8: only what the
// record waited for needs. Everything else, and everything with other seeds, is random. Equal seeds
// and schedules give equal orders, so ranks that meet in collectives must have equal seeds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "trainer/device/device.h"

namespace tessera::trainer {

inline constexpr std::uint64_t kFirstRandomSeed = 9;

// Memory of copies and operations must live until they have run. A command's error comes out of the
// call that made it run; the command is then gone. A wait or host_wait for an event that was not
// recorded after seal() does nothing, or is left to `inner`.
class Shuffling : public Device {
 public:
  // Queues work that is no operation on a stream. It may issue, but must not wait for what comes
  // after it.
  virtual void enqueue(Stream stream, std::function<void()> work,
                       std::string_view what = "work") = 0;
  // Runs everything that was issued. The destructor does not: it drops what nobody waited for,
  // because its memory may be gone.
  virtual void drain() = 0;
  // Returns how many issued commands have not run.
  virtual std::int64_t pending() const = 0;
};

// inner: a device that executes at issue, as the CPU does, and outlives the result. It sees
// operations and copies in the order they run, no waits, and of several records of one event only
// the last issued. Error(internal) out of host_wait, seconds or drain if no stream can go on.
std::unique_ptr<Shuffling> shuffling(Device& inner, std::uint64_t seed);

}  // namespace tessera::trainer
