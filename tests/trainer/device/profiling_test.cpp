// SPDX-License-Identifier: Apache-2.0
// Profiling on a fake device that executes nothing and whose clock the test moves.
#include "trainer/device/profiling.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>

#include "lib/base/error.h"

using namespace tessera;
using namespace tessera::trainer;

namespace {

class Clockwork final : public Device {
 public:
  std::map<std::string, double> seconds_of;  // by op_name, or "copy"
  double gap_s = 0;                          // before each operation
  std::vector<std::string> calls;            // all except records

  const DeviceInfo& info() const override { return info_; }
  std::byte* allocate(Pool, std::int64_t) override { return nullptr; }
  std::int64_t workspace_bytes(const Op&) const override { return 0; }
  void prepare(std::span<const Op>, std::span<std::byte>) override {}
  void seal() override {}
  void run(Stream, const Op& op, Tag) override { pass(op_name(op)); }
  void copy(Stream, void*, const void*, std::int64_t) override { pass("copy"); }
  void record(Stream, Event event) override {
    ++records;
    // Records come in pairs: the time between operations passes before the first of a pair.
    if (event % 2 == 0) now_ += gap_s;
    times_.at(event) = now_;
  }
  void wait(Stream, Event) override { calls.emplace_back("wait"); }
  void host_wait(Event) override { ++host_waits; }
  double seconds(Event from, Event to) override { return times_.at(to) - times_.at(from); }

  int records = 0;
  int host_waits = 0;

 private:
  void pass(const std::string& name) {
    calls.push_back(name);
    now_ += seconds_of[name];
  }
  DeviceInfo info_;
  double now_ = 0;
  std::array<double, kEvents> times_{};
};

const OpTotal& total_of(const std::vector<OpTotal>& totals, std::string_view name,
                        std::string_view phase) {
  const auto found = std::ranges::find_if(
      totals, [&](const OpTotal& t) { return t.name == name && t.phase == phase; });
  REQUIRE(found != totals.end());
  return *found;
}

Tag in(Phase phase) {
  return {.phase = phase};
}

}  // namespace

TEST_CASE("switched off, everything goes through and nothing is recorded") {
  Clockwork device;
  ProfilingDevice profiling(device);
  profiling.run(Stream::compute, Gemm{}, in(Phase::forward));
  profiling.copy(Stream::copy, nullptr, nullptr, 8);
  profiling.wait(Stream::compute, 3);
  CHECK(device.calls == std::vector<std::string>{"gemm", "copy", "wait"});
  CHECK(device.records == 0);
  profiling.record(Stream::compute, 3);
  CHECK(device.records == 1);
}

TEST_CASE("each operation's time goes to its name, phase and class, gaps to none") {
  Clockwork device;
  device.gap_s = 1000;
  device.seconds_of = {{"gemm", 2},
                       {"attention_backward", 8},
                       {"attention_forward", 4},
                       {"act_forward", 1},
                       {"cast", 16},
                       {"copy", 32}};
  ProfilingDevice profiling(device);
  Tensor matrix{.data = nullptr, .dtype = DType::f32, .rows = 10, .cols = 10, .ld = 10};
  std::byte there{};
  matrix.data = &there;                                        // never read
  profiling.run(Stream::compute, Gemm{}, in(Phase::forward));  // not yet measured
  profiling.begin();
  profiling.run(Stream::compute, Gemm{.a = matrix, .b = matrix, .d = matrix}, in(Phase::forward));
  profiling.run(Stream::compute, Gemm{.a = matrix, .b = matrix, .d = matrix}, in(Phase::forward));
  profiling.run(Stream::compute, Gemm{}, in(Phase::backward));
  profiling.run(Stream::compute, AttentionForward{}, in(Phase::recompute));
  profiling.run(Stream::compute, AttentionBackward{}, in(Phase::backward));
  profiling.run(Stream::compute, ActForward{}, in(Phase::forward));
  profiling.run(Stream::compute, Cast{}, in(Phase::update));
  profiling.copy(Stream::copy, nullptr, nullptr, 100);
  profiling.copy(Stream::compute, nullptr, nullptr, 3);
  const std::vector<OpTotal> totals = profiling.end();
  CHECK(totals.size() == 8);
  const OpTotal& forward = total_of(totals, "gemm", "forward");
  CHECK(forward.kind == OpClass::gemm);
  CHECK(forward.count == 2);
  CHECK(forward.seconds == 4);
  CHECK(forward.matmul_flops == 2 * 2 * 1000);
  CHECK(forward.bytes == 2 * 3 * 400);
  CHECK(total_of(totals, "gemm", "backward").seconds == 2);
  CHECK(total_of(totals, "attention_forward", "recompute").kind == OpClass::attention);
  CHECK(total_of(totals, "attention_backward", "backward").seconds == 8);
  CHECK(total_of(totals, "act_forward", "forward").kind == OpClass::memory_bound);
  CHECK(total_of(totals, "cast", "update").kind == OpClass::optimizer);
  CHECK(totals[6].kind == OpClass::offload);
  CHECK(totals[6].bytes == 200);
  CHECK(totals[6].seconds == 32);
  CHECK(totals[7].kind == OpClass::memory_bound);
  // Switched off again, it records nothing.
  const int records = device.records;
  profiling.run(Stream::compute, Gemm{}, in(Phase::forward));
  CHECK(device.records == records);
  profiling.begin();
  CHECK(profiling.end().empty());
}

TEST_CASE("more operations than events are measured by waiting in between") {
  Clockwork device;
  device.seconds_of = {{"rope", 0.5}};
  ProfilingDevice profiling(device);
  profiling.begin();
  for (int i = 0; i < 1000; ++i) profiling.run(Stream::compute, Rope{}, in(Phase::forward));
  CHECK(device.host_waits > 0);
  const std::vector<OpTotal> totals = profiling.end();
  REQUIRE(totals.size() == 1);
  CHECK(totals[0].count == 1000);
  CHECK(totals[0].seconds == 500);
}

TEST_CASE("an event that the profile needs is refused to others, measuring or not") {
  Clockwork device;
  ProfilingDevice profiling(device);
  profiling.record(Stream::compute, ProfilingDevice::kFirstEvent - 1);
  CHECK_THROWS_AS(profiling.record(Stream::compute, ProfilingDevice::kFirstEvent), Error);
  CHECK_THROWS_AS(profiling.record(Stream::compute, kEvents - 1), Error);
}
