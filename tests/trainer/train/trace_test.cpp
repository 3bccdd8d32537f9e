// The lives that the memory plan gives its buffers, against what operations really touch.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>

#include "tests/trainer/train/training.h"
#include "trainer/model/decoder.h"
#include "trainer/optim/update.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

// Follows the operations of a step through the device pool: who wrote each unit of bytes last.
class Tracer {
 public:
  explicit Tracer(const Memory& memory)
      : memory_(memory),
        base_(memory.data("u0.master") - memory.plan().buffer("u0.master").offset),
        owner_(static_cast<std::size_t>(memory.plan().pool_bytes[0]) / kBytes, -1) {}

  // As if written from outside: weights, scalars, the batch.
  void fill(const std::string& name) {
    const memory::Buffer& buffer = memory_.plan().buffer(name);
    mark(buffer.offset, buffer.bytes, index_of(buffer));
  }

  void follow(const Sequence& sequence) {
    for (const Issue& issue : sequence) {
      const Access touched = access(issue.op);
      for (const auto& range : touched.reads) read(range, issue);
      for (const auto& range : touched.writes) write(range, issue);
    }
  }

  // "gemm at tick 3 reads ...", the first only.
  const std::string& fault() const { return fault_; }

 private:
  static constexpr std::size_t kBytes = 4;  // of one mark

  int index_of(const memory::Buffer& buffer) const {
    return static_cast<int>(&buffer - memory_.plan().buffers.data());
  }

  // The live buffer that holds the range, or nullptr.
  const memory::Buffer* live(std::span<const std::byte> range, int tick) const {
    const std::int64_t begin = range.data() - base_;
    for (const memory::Buffer& buffer : memory_.plan().buffers) {
      if (buffer.pool != Pool::device || tick < buffer.first || buffer.last < tick) continue;
      if (buffer.offset <= begin &&
          begin + static_cast<std::int64_t>(range.size()) <= buffer.offset + buffer.bytes)
        return &buffer;
    }
    return nullptr;
  }

  void mark(std::int64_t begin, std::int64_t bytes, int owner) {
    for (std::int64_t at = begin; at < begin + bytes; at += kBytes)
      owner_[static_cast<std::size_t>(at) / kBytes] = owner;
  }

  void complain(const Issue& issue, const std::string& what) {
    if (fault_.empty())
      fault_ = fmt::format("{} at tick {} {}", op_name(issue.op), issue.tick, what);
  }

  void read(std::span<const std::byte> range, const Issue& issue) {
    const memory::Buffer* buffer = live(range, issue.tick);
    if (buffer == nullptr) return complain(issue, "reads what is in no live buffer");
    for (std::size_t at = 0; at < range.size(); at += kBytes) {
      const int owner = owner_[static_cast<std::size_t>(range.data() - base_ + at) / kBytes];
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
    mark(range.data() - base_, static_cast<std::int64_t>(range.size()), index_of(*buffer));
  }

  const Memory& memory_;
  const std::byte* base_;
  std::vector<int> owner_;
  std::string fault_;
};

// Two microbatches and an update on `memory`'s plan.
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
      Setup setup = small_setup();
      setup.memory.checkpointing = checkpointing;
      setup.memory.precision = precision;
      const Training training(setup);
      CHECK(fault_of_a_step(training.engine.memory()) == "");
    }
  }
}

TEST_CASE("a life that is too short is seen") {
  const Training training(small_setup());
  const Memory& memory = training.engine.memory();
  PoolBases bases{};
  bases[0] = memory.data("u0.master") - memory.plan().buffer("u0.master").offset;
  int seen = 0;
  for (const char* name : {"b0.act", "b1.qkv", "x.1", "branch", "dx", "batch"}) {
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
  const Training training(setup);
  std::map<int, std::vector<std::size_t>> kinds_forward, kinds_again;
  for (const Issue& issue : microbatch_operations(training.engine.memory(), 2, true)) {
    if (issue.unit == 0) continue;
    auto& kinds = issue.phase == Phase::forward ? kinds_forward : kinds_again;
    if (issue.phase == Phase::forward || issue.phase == Phase::recompute)
      kinds[issue.unit].push_back(issue.op.index());
  }
  CHECK(kinds_again.size() == 3);
  for (auto& [unit, kinds] : kinds_again) {
    std::vector<std::size_t> expected = kinds_forward[unit];
    expected.pop_back();  // the last product's result is not needed
    CHECK(kinds == expected);
  }
}
