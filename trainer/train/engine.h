// One rank's training: all memory and operations made once, then step after step.
//
// Life: the constructor plans, allocates the pools, prepares every operation, seals the device and
// initialises the model. Afterwards nothing is allocated. All calls from one thread.
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
  // For tests of the schedule: leaves out this wait between streams.
  std::optional<std::size_t> without_wait;
};

// FLOPs of all matrix products of a step, as the device's cost() counts them.
struct StepCost {
  double executed = 0;    // of all operations issued
  double recomputed = 0;  // of them in the recompute phase
};

// What the device knows after a step.
struct StepResult {
  std::int64_t step = 0;
  float loss = 0;
  float grad_norm = 0;
  bool finite = true;
  double seconds = 0;  // from the end of the step before (of the first: from start()) to its own
};

class Engine {
 public:
  // Error(host_oom, oom) if the plan does not fit the device. The device must be new. With more
  // ranks every one makes the same engine on a device of its own; `source` has the rows of the
  // global batch, of which each rank takes its part.
  Engine(Device& device, Communicator& communicator, const Setup& setup, TokenSource source);

  const memory::Config& config() const { return setup_.memory; }
  const memory::Plan& plan() const { return memory_->plan(); }
  const Memory& memory() const { return *memory_; }
  const Step& step() const { return *step_; }
  // Of this rank.
  StepCost step_cost() const;
  std::int64_t microbatches() const { return static_cast<std::int64_t>(loader_.microbatches()); }

  // The time from which the first step counts.
  void start();
  // Hands a step to the device, from 1 without gaps. Needs the results of step - 3 to have been
  // read. Alone, asks `stop` between microbatches; when it says a signal, the rest of the step is
  // not issued and false is returned: no step may follow. Several ranks must end behind the same
  // step: each tells the others at the step's end what its `stop` says.
  bool issue(std::int64_t step, const std::atomic<int>& stop);
  // What any of several ranks said then: SIGUSR1 if one said so, else SIGTERM, else 0. The same on
  // all; after result(step) or, where the device executes at issue, after issue(step).
  int agreed_stop(std::int64_t step) const;
  bool executes_at_issue() const { return device_.info().kind == "cpu"; }
  // Host seconds that issue() spent on the last step's data before the device had it.
  double data_seconds() const { return data_seconds_; }
  // Waits for the step's end.
  StepResult result(std::int64_t step);

  // For tests: the f32 master or gradient of a parameter, row-major with its stored rows.
  std::vector<float> read(const Tensor& tensor);
  // After masters were written, refresh_low_precision() makes the weights for compute follow.
  void write(const Tensor& tensor, std::span<const float> values);
  void refresh_low_precision();

 private:
  // Where the plan has put what every step touches.
  struct Slot {
    StepInputs* inputs = nullptr;
    StepState* state = nullptr;
    std::int32_t* batch = nullptr;
    float* votes = nullptr;  // kVotes: ranks that were told to stop, and by SIGUSR1
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
