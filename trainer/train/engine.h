// SPDX-License-Identifier: Apache-2.0
// One rank's training: all memory and operations are made once, then step follows step.
//
// The constructor plans, allocates the pools, prepares every operation, seals the device and
// initialises the model. Afterwards nothing is allocated. All calls come from one thread.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "trainer/data/data.h"
#include "trainer/model/memory.h"
#include "trainer/model/sequence.h"
#include "trainer/optim/recipe.h"
#include "trainer/shard/step.h"

namespace tessera::trainer {

struct Setup {
  memory::Config memory;
  Recipe recipe;
  std::uint64_t seed = 17;
  // For tests of the schedule: the wait between streams to leave out.
  std::optional<std::size_t> without_wait;
};

// FLOPs of all GEMMs and attention products of a step, as the device's cost() counts them.
struct StepCost {
  double executed = 0;    // all operations issued
  double recomputed = 0;  // those of the recompute phase
};

// The result of a step.
struct StepResult {
  std::int64_t step = 0;
  float loss = 0;
  float grad_norm = 0;
  bool finite = true;
  double seconds = 0;  // from the end of the step before (the first: from start()) to its own
};

class Engine {
 public:
  // Makes the engine on a new device. Error(host_oom, oom) if the plan does not fit it. With
  // several ranks each makes the same engine on a device of its own; `source` has the rows of the
  // global batch, of which each rank takes its part.
  Engine(Device& device, Communicator& communicator, const Setup& setup, TokenSource source);

  const memory::Config& config() const { return setup_.memory; }
  const memory::Plan& plan() const { return memory_->plan(); }
  const Memory& memory() const { return *memory_; }
  const Step& step() const { return *step_; }
  // Returns this rank's cost.
  StepCost step_cost() const;
  std::int64_t microbatches() const { return static_cast<std::int64_t>(loader_.microbatches()); }

  // Marks the time from which the first step counts.
  void start();
  // Issues a step; steps count from 1 without gaps. The result of step - 3 must have been read. A
  // single rank checks `stop` between microbatches: if it holds a signal, the rest of the step is
  // not issued and false is returned; no step may follow. Several ranks must end behind the same
  // step, so each tells the others at the step's end what its `stop` says.
  bool issue(std::int64_t step, const std::atomic<int>& stop);
  // Returns what the ranks agreed on: SIGUSR1 if any rank said so, otherwise SIGTERM if any did,
  // otherwise 0. The same on all ranks. Call it after result(step) or, if the device executes at
  // issue, after issue(step).
  int agreed_stop(std::int64_t step) const;
  bool executes_at_issue() const { return device_.info().kind == "cpu"; }
  // Returns the host's seconds for the last step's data, before the device had it.
  double data_seconds() const { return data_seconds_; }
  // Waits for the step's end.
  StepResult result(std::int64_t step);

  // For tests: returns the f32 master or gradient of a parameter, row-major with its stored rows.
  std::vector<float> read(const Tensor& tensor);
  // For tests: writes masters. refresh_low_precision() then updates the weights that compute.
  void write(const Tensor& tensor, std::span<const float> values);
  void refresh_low_precision();

 private:
  // The pinned buffers of a step in flight.
  struct Slot {
    StepInputs* inputs = nullptr;
    StepState* state = nullptr;
    std::int32_t* batch = nullptr;
    float* votes = nullptr;  // kVotes: ranks told to stop, and by SIGUSR1
  };

  void plan_memory();
  void run(const Sequence& sequence);
  void finish_copy();
  void vote(const Slot& slot, int stop);

  Device& device_;
  Communicator& communicator_;
  Setup setup_;
  Loader loader_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Step> step_;
  Sequence cast_;
  std::array<Slot, memory::kSlots> slots_;
  std::byte* inputs_ = nullptr;
  std::byte* state_ = nullptr;
  std::byte* batch_ = nullptr;
  double data_seconds_ = 0;
};

}  // namespace tessera::trainer
