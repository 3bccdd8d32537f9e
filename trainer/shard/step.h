// A step as it is handed to the device: the schedule's actions with their work, and the events that
// order the streams.
//
// Life: built once from the memory plan, run at every step. Nothing is allocated when it runs.
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

// Events below are the step loop's.
inline constexpr Event kFirstScheduleEvent = 8;

// All work of one microbatch of `sequences`, tick by tick of the plan's schedule. `first`: of the
// step, gradients are set, else added to. Two calls with the same arguments give equal work.
Sequence microbatch_operations(const Memory& memory, std::int64_t sequences, bool first);

class Step {
 public:
  // Error(internal) if the schedule has what this engine does not execute.
  Step(const Memory& memory, const Recipe& recipe);

  // Hands the device everything up to and with the microbatch's last action, or what follows the
  // last microbatch. The batch must be on the device. In order: 0, 1, ..., then update.
  void run_microbatch(Device& device, Communicator& communicator, std::size_t i) const;
  void run_update(Device& device, Communicator& communicator) const;

  // All operations that a step issues.
  std::vector<Op> operations() const;
  // Calls `visit` with each piece of work of a whole step, in the order of issue.
  template <class Visit>
  void each(Visit visit) const {
    for (const Entry& entry : entries_) {
      for (const Issue& issue : work(entry)) visit(issue);
    }
  }

  const std::vector<memory::Action>& schedule() const { return schedule_; }
  // Waits between streams. For tests of the schedule: without(i) leaves out the i-th.
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
