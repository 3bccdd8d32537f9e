// SPDX-License-Identifier: Apache-2.0
// The lifetimes that the memory plan gives its buffers, against what operations really touch.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <map>

#include "tests/trainer/train/training.h"
#include "trainer/model/decoder.h"
#include "trainer/optim/update.h"
#include "trainer/shard/step.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

// Follows the work of a step through the pools and records who wrote each unit of bytes last.
class Tracer {
 public:
  explicit Tracer(const Memory& memory) : memory_(memory) {
    for (const memory::Buffer& buffer : memory.plan().buffers)
      pools_[static_cast<std::size_t>(buffer.pool)].base = memory.data(buffer.name) - buffer.offset;
    for (std::size_t pool = 0; pool < pools_.size(); ++pool)
      pools_[pool].owner.assign(static_cast<std::size_t>(memory.plan().pool_bytes[pool]) / kBytes,
                                -1);
  }

  // Marks a buffer as written from outside: weights, scalars, the batch.
  void fill(const std::string& name) {
    const memory::Buffer& buffer = memory_.plan().buffer(name);
    mark(buffer, buffer.offset, buffer.bytes);
  }

  void follow(const Sequence& sequence) {
    for (const Issue& issue : sequence) {
      Access touched;
      if (const Op* op = issue.op()) {
        touched = access(*op);
      } else if (const auto* copy = std::get_if<Copy>(&issue.work)) {
        touched.reads = {bytes(copy->src, copy->bytes)};
        touched.writes = {bytes(copy->dst, copy->bytes)};
      } else {
        const Tensor& sum = std::get<AllReduce>(issue.work).tensor;
        touched.reads = {bytes(sum.data, sum.cols * bytes_of(sum.dtype))};
        touched.writes = touched.reads;
      }
      for (const auto& range : touched.reads) read(range, issue);
      for (const auto& range : touched.writes) write(range, issue);
    }
  }

  // Returns the first fault: "gemm at tick 3 reads ...".
  const std::string& fault() const { return fault_; }

 private:
  static constexpr std::size_t kBytes = 4;  // of a mark
  struct PoolMarks {
    const std::byte* base = nullptr;
    std::vector<int> owner;
  };

  static std::span<const std::byte> bytes(const void* data, std::int64_t count) {
    return {static_cast<const std::byte*>(data), static_cast<std::size_t>(count)};
  }

  int index_of(const memory::Buffer& buffer) const {
    return static_cast<int>(&buffer - memory_.plan().buffers.data());
  }
  PoolMarks& pool_of(const memory::Buffer& buffer) {
    return pools_[static_cast<std::size_t>(buffer.pool)];
  }

  // Returns the live buffer that holds the range, or nullptr.
  const memory::Buffer* live(std::span<const std::byte> range, int tick) {
    for (const memory::Buffer& buffer : memory_.plan().buffers) {
      if (tick < buffer.first || buffer.last < tick) continue;
      const std::byte* begin = pool_of(buffer).base + buffer.offset;
      if (begin <= range.data() && range.data() + range.size() <= begin + buffer.bytes)
        return &buffer;
    }
    return nullptr;
  }

  void mark(const memory::Buffer& buffer, std::int64_t begin, std::int64_t count) {
    for (std::int64_t at = begin; at < begin + count; at += kBytes)
      pool_of(buffer).owner[static_cast<std::size_t>(at) / kBytes] = index_of(buffer);
  }

  void complain(const Issue& issue, const std::string& what) {
    if (!fault_.empty()) return;
    const Op* op = issue.op();
    fault_ =
        fmt::format("{} at tick {} {}", op != nullptr ? op_name(*op) : "a move", issue.tick, what);
  }

  void read(std::span<const std::byte> range, const Issue& issue) {
    const memory::Buffer* buffer = live(range, issue.tick);
    if (buffer == nullptr) return complain(issue, "reads what is in no live buffer");
    const PoolMarks& pool = pool_of(*buffer);
    for (std::size_t at = 0; at < range.size(); at += kBytes) {
      const int owner =
          pool.owner[static_cast<std::size_t>(range.data() - pool.base + at) / kBytes];
      if (owner == index_of(*buffer)) continue;
      return complain(
          issue,
          fmt::format(
              "reads {}, written by {}", buffer->name,
              owner < 0 ? "nobody" : memory_.plan().buffers[static_cast<std::size_t>(owner)].name));
    }
  }

  void write(std::span<const std::byte> range, const Issue& issue) {
    const memory::Buffer* buffer = live(range, issue.tick);
    if (buffer == nullptr) return complain(issue, "writes what is in no live buffer");
    mark(*buffer, range.data() - pool_of(*buffer).base, static_cast<std::int64_t>(range.size()));
  }

  const Memory& memory_;
  std::array<PoolMarks, kPools> pools_;
  std::string fault_;
};

// Traces two microbatches and an update on `memory`'s plan.
std::string fault_of_a_step(const Memory& memory) {
  Tracer tracer(memory);
  tracer.follow(initial_operations(memory, 17));
  for (const char* from_outside : {"inputs", "state"}) tracer.fill(from_outside);
  for (const bool first : {true, false}) {
    tracer.fill("batch");
    tracer.follow(microbatch_operations(memory, first ? 2 : 1, first));
  }
  tracer.follow(update_operations(memory, {}));
  return tracer.fault();
}

}  // namespace

TEST_CASE("operations touch live buffers only, and read what was written there") {
  for (const Checkpointing checkpointing :
       {Checkpointing::none, Checkpointing::selective, Checkpointing::full}) {
    for (const Precision precision : {Precision::fp32, Precision::amp_bf16}) {
      for (const bool offload : {false, true}) {
        Setup setup = small_setup();
        setup.memory.checkpointing = checkpointing;
        setup.memory.precision = precision;
        setup.memory.offload = offload;
        CHECK(fault_of_a_step(Training(setup).engine.memory()) == "");
        setup.memory.shape.activation = model::Activation::gelu_tanh;
        setup.memory.fused_gelu = true;
        CHECK(fault_of_a_step(Training(setup).engine.memory()) == "");
        if (precision == Precision::fp32) {
          setup.memory.frozen = {"root.*", "block.1.*.gain"};
        } else {
          setup.memory.mixed_precision = MixedPrecision::full;
        }
        CHECK(fault_of_a_step(Training(setup).engine.memory()) == "");
      }
    }
  }
}

TEST_CASE("a life that is too short is seen") {
  const Training training(small_setup());
  const Memory& memory = training.engine.memory();
  PoolBases bases{};
  for (const memory::Buffer& buffer : memory.plan().buffers)
    bases[static_cast<std::size_t>(buffer.pool)] = memory.data(buffer.name) - buffer.offset;
  int seen = 0;
  for (const char* name : {"b0.act", "b1.qkv", "b1.x", "branch", "dx", "batch"}) {
    memory::Plan shorter = memory.plan();
    for (memory::Buffer& buffer : shorter.buffers) {
      if (buffer.name == name) --buffer.last;
    }
    if (!fault_of_a_step(Memory(memory.config(), shorter, bases)).empty()) ++seen;
  }
  CHECK(seen == 6);
}

TEST_CASE("recompute issues the very operations of the forward pass") {
  Setup setup = small_setup();
  setup.memory.checkpointing = Checkpointing::full;
  for (const bool fused : {false, true}) {
    setup.memory.shape.activation =
        fused ? model::Activation::gelu_tanh : model::Activation::gelu_erf;
    setup.memory.fused_gelu = fused;
    const Training training(setup);
    std::map<int, std::vector<std::size_t>> kinds_forward, kinds_again;
    for (const Issue& issue : microbatch_operations(training.engine.memory(), 2, true)) {
      if (issue.unit == 0) continue;
      auto& kinds = issue.phase == Phase::forward ? kinds_forward : kinds_again;
      if (issue.phase == Phase::forward || issue.phase == Phase::recompute)
        kinds[issue.unit].push_back(issue.op()->index());
    }
    CHECK(kinds_again.size() == 3);
    for (auto& [unit, kinds] : kinds_again) {
      std::vector<std::size_t> expected = kinds_forward[unit];
      expected.pop_back();  // nobody needs the last GEMM's result
      CHECK(kinds == expected);
    }
  }
}
