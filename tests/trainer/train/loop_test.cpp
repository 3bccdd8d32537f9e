// SPDX-License-Identifier: Apache-2.0
// The loop on a device whose clock the test sets.
#include "trainer/train/loop.h"

#include <doctest/doctest.h>

#include "tests/trainer/train/training.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

// The CPU device, except for the time between two events.
class SetClock final : public Device {
 public:
  explicit SetClock(double step_s) : step_s_(step_s) {}

  const DeviceInfo& info() const override { return device_->info(); }
  std::byte* allocate(Pool pool, std::int64_t bytes) override {
    return device_->allocate(pool, bytes);
  }
  std::int64_t workspace_bytes(const Op& op) const override { return device_->workspace_bytes(op); }
  void prepare(std::span<const Op> all, std::span<std::byte> workspace) override {
    device_->prepare(all, workspace);
  }
  void seal() override { device_->seal(); }
  void run(Stream stream, const Op& op, Tag tag) override { device_->run(stream, op, tag); }
  void copy(Stream stream, void* dst, const void* src, std::int64_t bytes) override {
    device_->copy(stream, dst, src, bytes);
  }
  void record(Stream stream, Event event) override { device_->record(stream, event); }
  void wait(Stream stream, Event event) override { device_->wait(stream, event); }
  void host_wait(Event event) override { device_->host_wait(event); }
  double seconds(Event, Event) override { return step_s_; }

 private:
  std::unique_ptr<Device> device_ = cpu_device(1);
  double step_s_;
};

struct Followed {
  std::vector<runlog::StepSample> samples;
  LoopEnd end;
  std::int64_t taken_before_measuring = -1;
};

Followed follow(const PaceRules& rules, double step_s) {
  SetClock device(step_s);
  const Setup setup = small_setup();
  const std::unique_ptr<Communicator> alone = single_communicator();
  Engine engine(device, *alone, setup, synthetic_tokens(setup.seed, setup.memory.shape.vocab));
  const std::atomic<int> stop{0};
  Pace pace(rules);
  Followed result;
  result.samples.reserve(static_cast<std::size_t>(pace.most_steps()));
  const auto* room = result.samples.data();
  result.end = train(engine, pace, stop, result.samples,
                     {.measuring =
                          [&] {
                            CHECK(result.taken_before_measuring == -1);
                            result.taken_before_measuring =
                                static_cast<std::int64_t>(result.samples.size());
                          },
                      .sample = {}});
  CHECK(result.samples.data() == room);
  return result;
}

}  // namespace

TEST_CASE("the loop goes on until the clock says that warm-up and measurement are long enough") {
  const Followed run = follow(gpu_pace(30, 10), 0.25);
  CHECK(run.end.kind == LoopEnd::Kind::complete);
  const runlog::StepStatistics sum = runlog::statistics(run.samples);
  CHECK(sum.warmup == 20);  // 5 s
  CHECK(sum.measured >= 60);
  CHECK(sum.measured <= 62);
  CHECK(sum.measured_s >= 15);
  CHECK(sum.tokens == sum.measured * 5 * 19);
  CHECK(run.end.step == sum.warmup + sum.measured);
  for (std::size_t i = 0; i < run.samples.size(); ++i) {
    CHECK(run.samples[i].step == static_cast<std::int64_t>(i) + 1);
    CHECK(run.samples[i].warmup == (i < 20));
  }
  CHECK(run.taken_before_measuring == 20);
}

TEST_CASE("exact steps are exact on the same clock, and the first measured one is told in time") {
  const Followed run = follow(exact_pace(8, 3), 0.25);
  CHECK(runlog::statistics(run.samples).warmup == 3);
  CHECK(runlog::statistics(run.samples).measured == 5);
  // Two steps are in flight: the fourth step has not begun.
  CHECK(run.taken_before_measuring <= 3);
  CHECK(run.taken_before_measuring >= 1);
  CHECK(follow(exact_pace(2, 0), 0.25).taken_before_measuring == 0);
}
