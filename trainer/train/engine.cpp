#include "trainer/train/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "trainer/model/decoder.h"
#include "trainer/optim/update.h"

namespace tessera::trainer {

namespace {

// Ends of the last four steps: two are running or waiting, two are needed for a duration.
constexpr std::int64_t kEndEvents = 4;
constexpr Event kStartEvent = kEndEvents;

Event end_event(std::int64_t step) {
  return step == 0 ? kStartEvent : static_cast<Event>(step % kEndEvents);
}

std::size_t slot_of(std::int64_t step) {
  return static_cast<std::size_t>(step % memory::kSlots);
}

// Never read or written: operations over it say how much workspace they need.
PoolBases imaginary_pools() {
  PoolBases bases{};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address, not a place
  for (auto& base : bases) base = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 20);
  return bases;
}

std::string gib(std::int64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
}

}  // namespace

Engine::Engine(Device& device, const Setup& setup, TokenSource source)
    : device_(device),
      setup_(setup),
      loader_(setup.memory, std::move(source)),
      sizes_(memory::microbatches(setup.memory.device_batch, setup.memory.microbatch)) {
  plan_memory();

  Sequence initial = initial_operations(*memory_, setup_.seed);
  std::vector<Op> all;
  for (const Sequence* sequence : {&first_, &next_, &last_, &update_, &cast_, &initial}) {
    for (const Issue& issue : *sequence) all.push_back(issue.op);
  }
  const memory::Buffer& workspace = plan().buffer("workspace");
  device_.prepare(all, {memory_->data("workspace"), static_cast<std::size_t>(workspace.bytes)});
  device_.seal();
  run(device_, initial, 0);
}

void Engine::plan_memory() {
  memory::Scratch scratch{.partials = gradient_partials(setup_.memory) * bytes_of(DType::f32),
                          .norm_partials = norm_partials_count(memory::units(
                                               setup_.memory.shape, setup_.memory.seq_len)) *
                                           bytes_of(DType::f64),
                          .step_inputs = sizeof(StepInputs),
                          .step_state = sizeof(StepState)};
  // What workspace the operations need is known when they are; where they lie does not matter.
  memory_ = std::make_unique<Memory>(setup_.memory, memory::plan(setup_.memory, scratch),
                                     imaginary_pools());
  build();
  for (const Sequence* sequence : {&first_, &next_, &last_, &update_, &cast_}) {
    for (const Issue& issue : *sequence)
      scratch.workspace = std::max(scratch.workspace, device_.workspace_bytes(issue.op));
  }

  memory::Plan plan = memory::plan(setup_.memory, scratch);
  const std::int64_t there = device_.info().memory_bytes;
  if (there > 0 && plan.total_bytes() > there) {
    throw Error(
        device_.info().kind == "cpu" ? ExitCode::host_oom : ExitCode::oom, "memory plan",
        fmt::format("{} are needed, the device has {}", gib(plan.total_bytes()), gib(there)),
        "make microbatch_size smaller or set activation_checkpointing: full");
  }
  PoolBases bases{};
  for (std::size_t pool = 0; pool < bases.size(); ++pool) {
    if (plan.pool_bytes[pool] > 0)
      bases[pool] = device_.allocate(static_cast<Pool>(pool), plan.pool_bytes[pool]);
  }
  memory_ = std::make_unique<Memory>(setup_.memory, std::move(plan), bases);
  build();
  inputs_ = memory_->data("inputs");
  state_ = memory_->data("state");
  batch_ = memory_->data("batch");
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    const std::string name = fmt::format("slot{}", slot);
    slots_[slot] = {.inputs = reinterpret_cast<StepInputs*>(memory_->data(name + ".inputs")),
                    .state = reinterpret_cast<StepState*>(memory_->data(name + ".state")),
                    .batch = reinterpret_cast<std::int32_t*>(memory_->data(name + ".batch"))};
  }
}

void Engine::build() {
  first_ = microbatch_operations(*memory_, sizes_.front(), true);
  next_.clear();
  last_.clear();
  if (sizes_.size() > 1) last_ = microbatch_operations(*memory_, sizes_.back(), false);
  if (sizes_.size() > 2) next_ = microbatch_operations(*memory_, sizes_[1], false);
  update_ = update_operations(*memory_, setup_.recipe);
  cast_ = cast_operations(*memory_);
}

const Sequence& Engine::microbatch(std::size_t i) const {
  if (i == 0) return first_;
  return i + 1 == sizes_.size() ? last_ : next_;
}

StepCost Engine::step_cost() const {
  StepCost total;
  const auto add = [&](const Sequence& sequence) {
    for (const Issue& issue : sequence) {
      const double flops = cost(issue.op).matmul_flops;
      total.executed += flops;
      if (issue.phase != Phase::recompute) continue;
      total.recomputed += flops;
      const bool halved = std::holds_alternative<AttentionForward>(issue.op);
      total.recomputed_square += halved ? 2 * flops : flops;
    }
  };
  for (std::size_t i = 0; i < sizes_.size(); ++i) add(microbatch(i));
  add(update_);
  return total;
}

void Engine::start() {
  device_.record(Stream::compute, kStartEvent);
}

bool Engine::issue(std::int64_t step, const std::atomic<int>& stop) {
  const double begin = monotonic_seconds();
  const Slot& slot = slots_[slot_of(step)];
  *slot.inputs =
      step_inputs(setup_.recipe, step, setup_.memory.device_batch * setup_.memory.seq_len);
  loader_.fill(step, {slot.batch, static_cast<std::size_t>(loader_.elements())});
  data_seconds_ = monotonic_seconds() - begin;

  device_.copy(Stream::compute, inputs_, slot.inputs, sizeof(StepInputs));
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    if (stop.load(std::memory_order_relaxed) != 0) return false;
    device_.copy(Stream::compute, batch_, slot.batch + loader_.begin(i),
                 loader_.count(i) * bytes_of(DType::i32));
    run(device_, microbatch(i), static_cast<std::int64_t>(i));
  }
  if (stop.load(std::memory_order_relaxed) != 0) return false;
  run(device_, update_, static_cast<std::int64_t>(sizes_.size()) - 1);
  device_.copy(Stream::compute, slot.state, state_, sizeof(StepState));
  device_.record(Stream::compute, end_event(step));
  return true;
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
  return values;
}

void Engine::write(const Tensor& tensor, std::span<const float> values) {
  if (static_cast<std::int64_t>(values.size()) != tensor.rows * tensor.cols) {
    throw Error(ExitCode::internal, "Engine::write",
                fmt::format("{} values for [{}, {}]", values.size(), tensor.rows, tensor.cols));
  }
  device_.copy(Stream::compute, tensor.data, values.data(),
               static_cast<std::int64_t>(values.size_bytes()));
}

void Engine::refresh_low_precision() {
  run(device_, cast_, 0);
}

}  // namespace tessera::trainer
