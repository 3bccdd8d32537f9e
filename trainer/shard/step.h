// SPDX-License-Identifier: Apache-2.0
// A step as it is issued to the device: the schedule's actions with their work, and the events that
// order the streams.
//
// It is built once from the memory plan and runs at every step. Running allocates nothing.
#pragma once

#include <array>
#include <atomic>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/device/device.h"
#include "trainer/model/memory.h"
#include "trainer/model/sequence.h"
#include "trainer/optim/recipe.h"

namespace tessera::trainer {

// The step loop owns the events below.
inline constexpr Event kFirstScheduleEvent = 8;

// Returns all work of one microbatch of `sequences`, tick by tick of the plan's schedule. first:
// gradients are set, otherwise added to. Two calls with equal arguments return equal work.
Sequence microbatch_operations(const Memory& memory, std::int64_t sequences, bool first);

class Step {
 public:
  // Throws Error(internal) if the schedule has something that this engine does not execute.
  Step(const Memory& memory, const Recipe& recipe);

  // Issues everything up to the microbatch's last action, or everything after the last microbatch.
  // The batch must be on the device. Call in order: 0, 1, ..., then update.
  void run_microbatch(Device& device, Communicator& communicator, std::size_t i) const;
  void run_update(Device& device, Communicator& communicator) const;

  // Returns all operations that a step issues.
  std::vector<Op> operations() const;
  // Calls `visit` with each piece of work of a whole step, in the order of issue.
  template <class Visit>
  void each(Visit visit) const {
    for (const Entry& entry : entries_) {
      for (const Issue& issue : work(entry)) visit(issue);
    }
  }

  const std::vector<memory::Action>& schedule() const { return schedule_; }
  // Waits between streams, for tests of the schedule: without(i) leaves out the i-th.
  std::size_t waits() const;
  void without(std::size_t wait);

 private:
  struct Entry {
    std::int64_t part = 0;  // of parts_: first, middle and last microbatch, update
    std::size_t begin = 0;  // its work there
    std::size_t end = 0;
    std::int16_t microbatch = 0;
    Stream stream = Stream::compute;
    std::vector<std::pair<Event, int>> waits;  // event, and the tick that records it
    std::optional<Event> record;
  };

  std::span<const Issue> work(const Entry& entry) const {
    return std::span(parts_[static_cast<std::size_t>(entry.part)])
        .subspan(entry.begin, entry.end - entry.begin);
  }
  void assign_events();
  void run(Device& device, Communicator& communicator, std::size_t begin, std::size_t end) const;

  std::vector<memory::Action> schedule_;
  std::array<Sequence, 4> parts_;
  std::vector<Entry> entries_;       // one an action
  std::vector<std::size_t> begins_;  // first entry of each microbatch, and of the update
};

}  // namespace tessera::trainer
