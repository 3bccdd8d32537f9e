// SPDX-License-Identifier: Apache-2.0
#include "trainer/train/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/memory/scratch.h"
#include "trainer/model/decoder.h"

namespace tessera::trainer {

namespace {

// End events of the last four steps: two are running or waiting, two are needed for a duration.
constexpr std::int64_t kEndEvents = 4;
constexpr Event kStartEvent = kEndEvents;
constexpr Event kCopyEvent = kStartEvent + 1;  // for read and write
constexpr Event kVoteEvent = kCopyEvent + 1;

// Votes lie behind the inputs of their slot, in memory that host and device see.
constexpr std::int64_t kVotes = 2;
constexpr std::int64_t kVotesBegin = 128;

Event end_event(std::int64_t step) {
  return step == 0 ? kStartEvent : static_cast<Event>(step % kEndEvents);
}

std::size_t slot_of(std::int64_t step) {
  return static_cast<std::size_t>(step % memory::kSlots);
}

static_assert(sizeof(StepInputs) <= kVotesBegin);
static_assert(kVotesBegin + kVotes * sizeof(float) <= memory::kStepScalarsBytes);
static_assert(sizeof(StepState) <= memory::kStepScalarsBytes);
static_assert(kVoteEvent < kFirstScheduleEvent);

// Returns a source of the rank's rows of the global batch.
TokenSource part_of(TokenSource source, std::int64_t first_row) {
  if (first_row == 0) return source;
  return [source = std::move(source), first_row](std::int64_t step, std::int64_t row,
                                                 std::span<std::int32_t> tokens) {
    source(step, first_row + row, tokens);
  };
}

std::string gib(std::int64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
}

}  // namespace

Engine::Engine(Device& device, Communicator& communicator, const Setup& setup, TokenSource source)
    : device_(device),
      communicator_(communicator),
      setup_(setup),
      loader_(setup.memory,
              part_of(std::move(source), communicator.rank() * setup.memory.device_batch)) {
  if (communicator.size() != setup.memory.world)
    throw Error(ExitCode::internal, "engine",
                fmt::format("{} ranks, planned for {}", communicator.size(), setup.memory.world));
  plan_memory();
  step_ = std::make_unique<Step>(*memory_, setup_.recipe);
  if (setup_.without_wait) step_->without(*setup_.without_wait);
  cast_ = cast_operations(*memory_);
  const Sequence initial = initial_operations(*memory_, setup_.seed);

  std::vector<Op> all = step_->operations();
  for (const Sequence* sequence : std::initializer_list<const Sequence*>{&cast_, &initial}) {
    for (const Issue& issue : *sequence) all.push_back(*issue.op());
  }
  const memory::Buffer& workspace = plan().buffer("workspace");
  device_.prepare(all, {memory_->data("workspace"), static_cast<std::size_t>(workspace.bytes)});
  device_.seal();
  run(initial);
}

void Engine::plan_memory() {
  memory::Plan plan = memory::plan(setup_.memory);
  const std::int64_t there = device_.info().memory_bytes;
  // A GPU's pinned pool lies in host memory, so it does not count against the GPU.
  const bool is_cpu = device_.info().kind == "cpu";
  const std::int64_t needed = is_cpu ? plan.total_bytes() : plan.device_bytes();
  if (there > 0 && needed > there) {
    throw Error(is_cpu ? ExitCode::host_oom : ExitCode::oom, "memory plan",
                fmt::format("{} are needed, the device has {}", gib(needed), gib(there)),
                "make microbatch_size smaller or set activation_checkpointing: full");
  }
  PoolBases bases{};
  for (std::size_t pool = 0; pool < bases.size(); ++pool) {
    if (plan.pool_bytes[pool] > 0)
      bases[pool] = device_.allocate(static_cast<Pool>(pool), plan.pool_bytes[pool]);
  }
  const auto communication = static_cast<std::size_t>(Pool::communication);
  const std::span<std::byte> registered(bases[communication],
                                        static_cast<std::size_t>(plan.pool_bytes[communication]));
  communicator_.prepare({&registered, registered.empty() ? std::size_t{0} : std::size_t{1}});
  memory_ = std::make_unique<Memory>(setup_.memory, std::move(plan), bases);
  inputs_ = memory_->data("inputs");
  state_ = memory_->data("state");
  batch_ = memory_->data("batch");
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    const std::string name = fmt::format("slot{}", slot);
    std::byte* const inputs = memory_->data(name + ".inputs");
    slots_[slot] = {.inputs = reinterpret_cast<StepInputs*>(inputs),
                    .state = reinterpret_cast<StepState*>(memory_->data(name + ".state")),
                    .batch = reinterpret_cast<std::int32_t*>(memory_->data(name + ".batch")),
                    .votes = reinterpret_cast<float*>(inputs + kVotesBegin)};
  }
}

void Engine::run(const Sequence& sequence) {
  for (const Issue& issue : sequence)
    device_.run(issue.stream, *issue.op(), {.unit = issue.unit, .phase = issue.phase});
}

StepCost Engine::step_cost() const {
  StepCost total;
  step_->each([&](const Issue& issue) {
    const Op* op = issue.op();
    if (op == nullptr) return;
    const double flops = cost(*op).matmul_flops;
    total.executed += flops;
    if (issue.phase == Phase::recompute) total.recomputed += flops;
  });
  return total;
}

void Engine::start() {
  device_.record(Stream::compute, kStartEvent);
}

// Issues a step: inputs and batch, each microbatch, the update, the votes, and the result's copy.
// The host waits for nothing.
bool Engine::issue(std::int64_t step, const std::atomic<int>& stop) {
  const double begin = monotonic_seconds();
  const Slot& slot = slots_[slot_of(step)];
  *slot.inputs =
      step_inputs(setup_.recipe, step,
                  setup_.memory.world * setup_.memory.device_batch * setup_.memory.seq_len);
  loader_.fill(step, {slot.batch, static_cast<std::size_t>(loader_.elements())});
  data_seconds_ = monotonic_seconds() - begin;

  device_.copy(Stream::compute, inputs_, slot.inputs, sizeof(StepInputs));
  const bool alone = setup_.memory.world == 1;
  for (std::size_t i = 0; i < loader_.microbatches(); ++i) {
    if (alone && stop.load(std::memory_order_relaxed) != 0) return false;
    device_.copy(Stream::compute, batch_, slot.batch + loader_.begin(i),
                 loader_.count(i) * bytes_of(DType::i32));
    step_->run_microbatch(device_, communicator_, i);
  }
  if (alone && stop.load(std::memory_order_relaxed) != 0) return false;
  step_->run_update(device_, communicator_);
  if (!alone) vote(slot, stop.load(std::memory_order_relaxed));
  device_.copy(Stream::compute, slot.state, state_, sizeof(StepState));
  device_.record(Stream::compute, end_event(step));
  return true;
}

// Each rank adds 1 for a stop and 1 for SIGUSR1; an all-reduce sums the votes.
void Engine::vote(const Slot& slot, int stop) {
  slot.votes[0] = stop != 0 ? 1 : 0;
  slot.votes[1] = stop == SIGUSR1 ? 1 : 0;
  communicator_.all_reduce_sum(
      Stream::reduce,
      {.data = slot.votes, .dtype = DType::f32, .rows = 1, .cols = kVotes, .ld = kVotes});
  device_.record(Stream::reduce, kVoteEvent);
  device_.wait(Stream::compute, kVoteEvent);
}

int Engine::agreed_stop(std::int64_t step) const {
  if (setup_.memory.world == 1) return 0;
  const float* votes = slots_[slot_of(step)].votes;
  if (votes[0] == 0) return 0;
  return votes[1] > 0 ? SIGUSR1 : SIGTERM;
}

StepResult Engine::result(std::int64_t step) {
  device_.host_wait(end_event(step));
  const StepState* state = slots_[slot_of(step)].state;
  return {.step = step,
          .loss = state->loss,
          .grad_norm = state->grad_norm,
          .finite = state->not_finite == 0,
          .seconds = device_.seconds(end_event(step - 1), end_event(step))};
}

std::vector<float> Engine::read(const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.rows * tensor.cols));
  device_.copy(Stream::compute, values.data(), tensor.data,
               static_cast<std::int64_t>(values.size() * sizeof(float)));
  finish_copy();
  return values;
}

void Engine::write(const Tensor& tensor, std::span<const float> values) {
  if (static_cast<std::int64_t>(values.size()) != tensor.rows * tensor.cols) {
    throw Error(ExitCode::internal, "Engine::write",
                fmt::format("{} values for [{}, {}]", values.size(), tensor.rows, tensor.cols));
  }
  device_.copy(Stream::compute, tensor.data, values.data(),
               static_cast<std::int64_t>(values.size_bytes()));
  finish_copy();
}

void Engine::finish_copy() {
  device_.record(Stream::compute, kCopyEvent);
  device_.host_wait(kCopyEvent);
}

void Engine::refresh_low_precision() {
  run(cast_);
}

}  // namespace tessera::trainer
