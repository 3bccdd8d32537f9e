// Runs a schedule in any order that its events allow, on the calling thread: a schedule that gives
// other bits than at issue lacks a wait. The order is that of CUDA, as tracing.h describes it.
//
// From seal() on nothing runs when it is issued: commands queue by stream until `host_wait`,
// `seconds` or `drain` needs them, and no more of them run than until the record waited for has
// run. So a copy reads its source as late as a GPU might, and what the host reads without a wait is
// old. Before seal(), and `allocate` and `prepare` always, all goes straight to `inner`.
//
// Where several streams could go on, the seed decides: 0 to 3, that stream (in the order of the
// enumeration) whenever it can; 4 to 7, that stream - 4 only when no other can; 8, only what the
// record waited for needs; in these the rest, and with all other seeds everything, by chance. Equal
// seeds and schedules give equal orders, so ranks that meet in collectives must have equal seeds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "trainer/device/device.h"

namespace tessera::trainer {

inline constexpr std::uint64_t kFirstRandomSeed = 9;

// `copy`'s and operations' memory must live until they ran. A command's error comes out of the call
// that made it run; the command is then gone. A wait, or a host_wait, for an event that was not
// recorded after seal() is nothing, or `inner`'s to answer.
class Shuffling : public Device {
 public:
  // Work that is no operation, for a stream; may issue, but not wait for what comes after it.
  virtual void enqueue(Stream stream, std::function<void()> work,
                       std::string_view what = "work") = 0;
  // Runs all that was issued. The destructor does not: what nobody waited for is dropped, as its
  // memory may be gone.
  virtual void drain() = 0;
  // Commands that were issued and have not run.
  virtual std::int64_t pending() const = 0;
};

// inner: a device that executes at issue, as the CPU does; it sees operations and copies in the
// order they run, no waits, and of several records of one event the last issued only. Must outlive
// the result. Error(internal) out of host_wait, seconds or drain if no stream can go on.
std::unique_ptr<Shuffling> shuffling(Device& inner, std::uint64_t seed);

}  // namespace tessera::trainer
