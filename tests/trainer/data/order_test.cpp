// SPDX-License-Identifier: Apache-2.0
// The order between streams: no access is left to chance, any order that the events allow gives the
// same bits, and every wait is needed for that.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/trainer/device/shuffling.h"
#include "tests/trainer/device/tracing.h"
#include "tests/trainer/train/ranks.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

// A communicator whose collectives go through the tracing and shuffling devices.
class Collectives : public Communicator {
 public:
  Collectives(Communicator& inner, Trace* trace, Shuffling* shuffling)
      : inner_(inner), trace_(trace), shuffling_(shuffling) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  void prepare(std::span<const std::span<std::byte>> registered) override {
    inner_.prepare(registered);
  }
  void all_gather(Stream, Tensor, Tensor) override { FAIL("is not traced"); }
  void reduce_scatter_sum(Stream, Tensor, Tensor) override { FAIL("is not traced"); }
  void all_reduce_sum(Stream stream, Tensor tensor) override {
    const std::span<const std::byte> bytes(
        static_cast<const std::byte*>(tensor.data),
        static_cast<std::size_t>(tensor.cols * bytes_of(tensor.dtype)));
    if (trace_ != nullptr) trace_->touch(stream, {bytes}, {bytes}, "all_reduce_sum");
    if (shuffling_ == nullptr) return inner_.all_reduce_sum(stream, tensor);
    shuffling_->enqueue(stream, [this, stream, tensor] { inner_.all_reduce_sum(stream, tensor); });
  }
  std::optional<std::string> poll() override { return inner_.poll(); }
  void abort() override { inner_.abort(); }

 private:
  Communicator& inner_;
  Trace* trace_;
  Shuffling* shuffling_;
};

struct Kind {
  const char* name;
  std::int64_t microbatch;  // of 4 sequences a rank
  int ranks;
  MixedPrecision mixed;
  bool offload;
  bool tied;
};
constexpr Kind kKinds[] = {
    {"one rank", 2, 1, MixedPrecision::default_, false, true},
    {"offload", 2, 1, MixedPrecision::default_, true, true},
    {"offload of one microbatch", 4, 1, MixedPrecision::default_, true, false},
    {"two ranks", 4, 2, MixedPrecision::default_, false, true},
    {"two ranks, PURE, two microbatches", 2, 2, MixedPrecision::pure, false, false},
    {"two ranks and offload", 4, 2, MixedPrecision::full, true, true},
};

Setup setup_of(const Kind& kind) {
  Setup setup = small_setup();
  setup.memory.shape.n_layers = 5;
  setup.memory.shape.tied = kind.tied;
  if (!kind.tied) {
    setup.memory.shape.activation = model::Activation::gelu_tanh;
    setup.memory.fused_gelu = true;
  }
  setup.memory.precision = Precision::amp_bf16;
  setup.memory.mixed_precision = kind.mixed;
  setup.memory.offload = kind.offload;
  setup.memory.device_batch = 4;
  setup.memory.microbatch = kind.microbatch;
  setup.memory.world = kind.ranks;
  return setup;
}

TokenSource tokens_of(const Setup& setup) {
  return synthetic_tokens(setup.seed, setup.memory.shape.vocab);
}

// Returns the races of each rank's first steps, as text.
std::string races(const Kind& kind, const Setup& setup, std::int64_t steps = 2) {
  std::string text;
  on_ranks(kind.ranks, [&](int rank, Communicator& communicator) {
    const std::unique_ptr<Device> cpu = cpu_device(1);
    // To CUDA a wait for an event that nobody recorded is nothing; the CPU refuses it.
    const std::unique_ptr<Shuffling> in_order = shuffling(*cpu, kFirstRandomSeed);
    Trace trace;
    const std::unique_ptr<Device> device = tracing(*in_order, trace);
    Collectives collectives(communicator, &trace, in_order.get());
    Engine engine(*device, collectives, setup, tokens_of(setup));
    train_rank(engine, steps);
    CHECK(trace.accesses() > 100);
    if (rank == 0) text = trace.text();
  });
  return text;
}

RankResult shuffled(const Kind& kind, const Setup& setup, std::uint64_t seed) {
  RankResult result;
  on_ranks(kind.ranks, [&](int rank, Communicator& communicator) {
    const std::unique_ptr<Device> cpu = cpu_device(1);
    const std::unique_ptr<Shuffling> device = shuffling(*cpu, seed);
    Collectives collectives(communicator, nullptr, device.get());
    Engine engine(*device, collectives, setup, tokens_of(setup));
    RankResult own = train_rank(engine, 3);
    if (rank == 0) result = std::move(own);
  });
  return result;
}

std::size_t waits_of(const Kind& kind, const Setup& setup) {
  std::size_t waits = 0;
  on_ranks(kind.ranks, [&](int rank, Communicator& communicator) {
    const std::unique_ptr<Device> device = cpu_device(1);
    Engine engine(*device, communicator, setup, tokens_of(setup));
    if (rank == 0) waits = engine.step().waits();
  });
  return waits;
}

}  // namespace

TEST_CASE("no access of a step is left to chance") {
  for (const Kind& kind : kKinds) {
    CAPTURE(kind.name);
    CHECK(races(kind, setup_of(kind)) == "");
  }
}

TEST_CASE("any order that the events allow gives the same bits") {
  for (const Kind& kind : kKinds) {
    CAPTURE(kind.name);
    const Setup setup = setup_of(kind);
    RankResult in_order;
    on_ranks(kind.ranks, [&](int rank, Communicator& communicator) {
      const std::unique_ptr<Device> device = cpu_device(1);
      Engine engine(*device, communicator, setup, tokens_of(setup));
      RankResult own = train_rank(engine, 3);
      if (rank == 0) in_order = std::move(own);
    });
    for (std::uint64_t seed = 0; seed < kFirstRandomSeed + 6; ++seed) {
      const RankResult other = shuffled(kind, setup, seed);
      CHECK(same_bits(other.masters, in_order.masters));
      CHECK(other.losses == in_order.losses);
      CHECK(other.norms == in_order.norms);
    }
  }
}

TEST_CASE("without any one wait a race is found") {
  std::size_t waits = 0;
  for (const Kind& kind : kKinds) {
    Setup setup = setup_of(kind);
    const std::size_t count = waits_of(kind, setup);
    CHECK((count == 0) == (kind.ranks == 1 && !kind.offload));
    for (std::size_t wait = 0; wait < count; ++wait) {
      setup.without_wait = wait;
      CAPTURE(kind.name);
      CAPTURE(wait);
      CHECK(races(kind, setup, 1) != "");
    }
    waits += count;
  }
  CHECK(waits > 60);
}
