// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/device/schedules.h"

#include <array>
#include <cstring>
#include <random>
#include <span>

#include "trainer/device/random.h"
#include "trainer/selftest/run_case.h"

namespace tessera::trainer::test {
namespace {

constexpr int kUnits = 4;
constexpr int kSteps = 4;
constexpr int kInSlots = 2;
constexpr int kOutSlots = 3;
constexpr std::int64_t kWidth = 16;
constexpr std::int64_t kFloats = kWidth * kWidth;
constexpr std::int64_t kBytes = kFloats * 4;

// Numbers of events; after each base come as many as there are slots or units.
constexpr Event kCopied = 0;
constexpr Event kGathered = kCopied + kInSlots;
constexpr Event kSlotFree = kGathered + 2;
constexpr Event kInputUsed = kSlotFree + 2;
constexpr Event kGradient = kInputUsed + 1;
constexpr Event kUpdated = kGradient + kUnits;
constexpr Event kResult = kUpdated + kUnits;

Event at(Event first, int i) {
  return static_cast<Event>(first + i);
}

class Training {
 public:
  Training() {
    for (Tensor* t : {&x_, &slots_[0], &slots_[1], &constant_}) *t = matrix();
    shards_ = memory_(kUnits * kBytes);
    for (int u = 0; u < kUnits; ++u) {
      const auto i = static_cast<std::size_t>(u);
      shard_[i] = tensor(shards_ + u * kBytes);
      act_[i] = matrix();
      gradient_[i] = matrix();
      fill(shard_[i], 100 + i, 0.3F);
    }
    for (auto& in : in_) in = matrix();
    for (auto& out : out_) out = memory_(kUnits * kBytes);
    fill(constant_, 99, 0.1F);
  }

  std::vector<Op> ops() const {
    std::vector<Op> all;
    for (int u = 0; u < kUnits; ++u) {
      all.insert(all.end(), {gather(u), forward(u), backward(u), update(u)});
    }
    return all;
  }

  void issue(Device& device, Trace* trace, int left_out, TrainingOutcome& outcome) {
    const auto needed = [&] { return outcome.waits++ != left_out; };
    const auto wait = [&](Stream stream, Event event) {
      if (needed()) device.wait(stream, event);
    };
    const auto host_wait = [&](Event event) {
      if (needed()) device.host_wait(event);
    };
    const auto read = [&](int step) {
      host_wait(at(kResult, step % kOutSlots));
      const std::byte* out = out_[static_cast<std::size_t>(step % kOutSlots)];
      if (trace != nullptr) trace->host_access({{out, kUnits * kBytes}}, {}, "result");
      const auto* values = reinterpret_cast<const float*>(out);
      outcome.read.insert(outcome.read.end(), values, values + kUnits * kFloats);
    };
    for (int step = 0; step < kSteps; ++step) {
      const int in_slot = step % kInSlots;
      const Tensor& in = in_[static_cast<std::size_t>(in_slot)];
      if (step >= kInSlots) host_wait(at(kCopied, in_slot));
      if (trace != nullptr) {
        trace->host_access({}, {{static_cast<const std::byte*>(in.data), kBytes}}, "batch");
      }
      fill(in, static_cast<std::uint64_t>(step), 1);

      if (step > 0) wait(Stream::copy, kInputUsed);
      device.copy(Stream::copy, x_.data, in.data, kBytes);
      device.record(Stream::copy, at(kCopied, in_slot));
      for (int u = 0; u < kUnits; ++u) {
        const Tag tag{static_cast<std::int16_t>(u), 0, Phase::forward};
        if (step > 0) wait(Stream::gather, at(kUpdated, u));
        if (u >= 2) wait(Stream::gather, at(kSlotFree, u % 2));
        device.run(Stream::gather, gather(u), tag);
        device.record(Stream::gather, at(kGathered, u % 2));
        if (u == 0) wait(Stream::compute, at(kCopied, in_slot));
        wait(Stream::compute, at(kGathered, u % 2));
        device.run(Stream::compute, forward(u), tag);
        device.record(Stream::compute, at(kSlotFree, u % 2));
        if (u == 0) device.record(Stream::compute, kInputUsed);
      }
      // Compute knows through gather, which has waited for the update, that the last step's
      // gradient was taken.
      for (int u = 0; u < kUnits; ++u) {
        device.run(Stream::compute, backward(u),
                   {static_cast<std::int16_t>(u), 0, Phase::backward});
        device.record(Stream::compute, at(kGradient, u));
        wait(Stream::reduce, at(kGradient, u));
        device.run(Stream::reduce, update(u), {static_cast<std::int16_t>(u), 0, Phase::update});
        device.record(Stream::reduce, at(kUpdated, u));
      }
      device.copy(Stream::reduce, out_[static_cast<std::size_t>(step % kOutSlots)], shards_,
                  kUnits * kBytes);
      device.record(Stream::reduce, at(kResult, step % kOutSlots));
      if (step >= 2) read(step - 2);
    }
    read(kSteps - 2);
    read(kSteps - 1);
  }

 private:
  static Tensor tensor(std::byte* p) { return {p, DType::f32, kWidth, kWidth, kWidth}; }
  Tensor matrix() {
    std::byte* p = memory_(kBytes);
    std::memset(p, 0, kBytes);
    return tensor(p);
  }
  static void fill(const Tensor& t, std::uint64_t seed, float scale) {
    auto* values = static_cast<float*>(t.data);
    for (std::uint64_t i = 0; i < kFloats; ++i) {
      values[i] = scale * static_cast<float>(normal_pair(seed, i / 2)[i % 2]);
    }
  }
  static std::size_t index(int u) { return static_cast<std::size_t>(u); }

  Op gather(int u) const { return Cast{shard_[index(u)], slots_[index(u % 2)]}; }
  Op forward(int u) const {
    return Gemm{u == 0 ? x_ : act_[index(u - 1)], slots_[index(u % 2)], act_[index(u)]};
  }
  Op backward(int u) const { return Gemm{act_[index(u)], constant_, gradient_[index(u)]}; }
  Op update(int u) const { return Cast{gradient_[index(u)], shard_[index(u)], true}; }

  HostMemory memory_;
  Tensor x_, constant_;
  std::byte* shards_ = nullptr;
  std::array<Tensor, kUnits> shard_, act_, gradient_;
  std::array<Tensor, 2> slots_;
  std::array<Tensor, kInSlots> in_;
  std::array<std::byte*, kOutSlots> out_{};
};

}  // namespace

TrainingOutcome run_training(const Around& around, Trace* trace, int left_out) {
  Training training;  // outlives queued work
  const auto cpu = cpu_device(1);
  Device& device = around(*cpu);
  device.prepare(training.ops(), {});
  device.seal();
  TrainingOutcome outcome;
  training.issue(device, trace, left_out, outcome);
  return outcome;
}

std::vector<Step> random_schedule(std::uint64_t seed, int steps) {
  std::mt19937_64 random(seed);
  const auto below = [&](int n) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(n));
  };
  std::vector<Step> schedule;
  for (int i = 0; i < steps; ++i) {
    Step step;
    const int kind = below(20);
    step.kind = kind < 8    ? Step::Kind::touch
                : kind < 9  ? Step::Kind::host
                : kind < 14 ? Step::Kind::record
                : kind < 19 ? Step::Kind::wait
                            : Step::Kind::host_wait;
    step.stream = static_cast<Stream>(below(kStreams));
    step.event = static_cast<Event>(below(3));
    step.begin = below(24);
    step.size = 1 + below(6);
    step.writes = below(3) == 0;
    schedule.push_back(step);
  }
  return schedule;
}

std::vector<std::vector<bool>> happens_before(const std::vector<Step>& schedule) {
  const auto is_host = [](const Step& step) {
    return step.kind == Step::Kind::host || step.kind == Step::Kind::host_wait;
  };
  const std::size_t n = schedule.size();
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n, false));
  for (std::size_t j = 0; j < n; ++j) {
    const Step& later = schedule[j];
    bool bound = false;  // the record that a wait refers to has been found
    for (std::size_t i = j; i-- > 0;) {
      const Step& earlier = schedule[i];
      bool edge = is_host(earlier) || (!is_host(later) && earlier.stream == later.stream);
      const bool waits = later.kind == Step::Kind::wait || later.kind == Step::Kind::host_wait;
      if (waits && !bound && earlier.kind == Step::Kind::record && earlier.event == later.event) {
        bound = true;
        edge = true;
      }
      if (!edge) continue;
      before[i][j] = true;
      for (std::size_t k = 0; k < i; ++k) {
        if (before[k][i]) before[k][j] = true;
      }
    }
  }
  return before;
}

}  // namespace tessera::trainer::test
