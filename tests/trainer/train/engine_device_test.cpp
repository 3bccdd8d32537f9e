// SPDX-License-Identifier: Apache-2.0
// The engine's requests to its device.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "tests/trainer/train/training.h"

namespace tessera::trainer::test {

namespace {

// A device that records what it is asked to allocate and forwards everything.
class Asked : public Device {
 public:
  explicit Asked(Device& inner) : inner_(inner) {}
  const DeviceInfo& info() const override { return inner_.info(); }
  std::byte* allocate(Pool pool, std::int64_t bytes) override {
    allocations.emplace_back(pool, bytes);
    return inner_.allocate(pool, bytes);
  }
  std::int64_t workspace_bytes(const Op& op) const override { return inner_.workspace_bytes(op); }
  void prepare(std::span<const Op> all, std::span<std::byte> workspace) override {
    given = static_cast<std::int64_t>(workspace.size());
    for (const Op& op : all) needed = std::max(needed, inner_.workspace_bytes(op));
    inner_.prepare(all, workspace);
  }
  void seal() override { inner_.seal(); }
  void run(Stream stream, const Op& op, Tag tag) override { inner_.run(stream, op, tag); }
  void copy(Stream stream, void* dst, const void* src, std::int64_t bytes) override {
    inner_.copy(stream, dst, src, bytes);
  }
  void record(Stream stream, Event event) override { inner_.record(stream, event); }
  void wait(Stream stream, Event event) override { inner_.wait(stream, event); }
  void host_wait(Event event) override { inner_.host_wait(event); }
  double seconds(Event from, Event to) override { return inner_.seconds(from, to); }

  std::vector<std::pair<Pool, std::int64_t>> allocations;
  std::int64_t needed = 0;  // workspace of the most demanding operation
  std::int64_t given = 0;

 private:
  Device& inner_;
};

}  // namespace

TEST_CASE(
    "what is planned is allocated, one piece a pool, with budgets near what operations need") {
  for (const Precision precision : {Precision::fp32, Precision::amp_bf16}) {
    for (const Shape shape : {Shape::mpt, Shape::llama}) {
      for (const int threads : {1, 2}) {
        Setup setup = small_setup();
        if (shape == Shape::llama) make_llama(setup.memory.shape);
        setup.memory.precision = precision;
        setup.memory.seq_len = 100;
        setup.memory.target.threads = threads;
        const std::unique_ptr<Device> cpu = cpu_device(threads);
        Asked device(*cpu);
        const std::unique_ptr<Communicator> alone = single_communicator();
        const Engine engine(device, *alone, setup, synthetic_tokens(1, 201));
        // The very plan that submit makes of the same config.
        const memory::Plan plan = memory::plan(setup.memory);
        std::vector<std::pair<Pool, std::int64_t>> expected;
        for (std::size_t pool = 0; pool < plan.pool_bytes.size(); ++pool) {
          if (plan.pool_bytes[pool] > 0)
            expected.emplace_back(static_cast<Pool>(pool), plan.pool_bytes[pool]);
        }
        CHECK(device.allocations == expected);
        CHECK(device.needed <= device.given);
        CHECK(device.needed > device.given / 4);
      }
    }
  }
}

namespace {

// Leaves NaN in all of the pools in prepare, as a GPU may, which runs operations to load their
// kernels and times GEMMs in its memory.
class Scribbling final : public Asked {
 public:
  explicit Scribbling(Device& inner) : Asked(inner) {}
  std::byte* allocate(Pool pool, std::int64_t bytes) override {
    std::byte* const base = Asked::allocate(pool, bytes);
    if (pool != Pool::pinned) pools_.emplace_back(base, static_cast<std::size_t>(bytes));
    return base;
  }
  void prepare(std::span<const Op> all, std::span<std::byte> workspace) override {
    for (const std::span<std::byte> pool : pools_) {
      std::ranges::fill(pool, std::byte{0xFF});
      scribbled += std::ssize(pool);
    }
    Asked::prepare(all, workspace);
  }
  std::int64_t scribbled = 0;

 private:
  std::vector<std::span<std::byte>> pools_;
};

}  // namespace

TEST_CASE("what a device leaves in memory when it prepares has no say in training") {
  for (const Precision precision : {Precision::fp32, Precision::amp_bf16}) {
    Setup setup = small_setup();
    setup.memory.precision = precision;
    setup.memory.checkpointing = Checkpointing::selective;
    Training plain(setup);
    plain.run(3);
    const std::unique_ptr<Device> cpu = cpu_device(1);
    auto device = std::make_unique<Scribbling>(*cpu);
    const Scribbling& scribbling = *device;
    Training scribbled(Training::on(1, setup),
                       synthetic_tokens(setup.seed, setup.memory.shape.vocab), std::move(device));
    scribbled.run(3);
    CHECK(scribbling.scribbled > 10000);
    for (const char* kind : {"master", "m", "v"})
      CHECK(same_bits(scribbled.all(kind), plain.all(kind)));
  }
}

}  // namespace tessera::trainer::test
