// SPDX-License-Identifier: Apache-2.0
// A device that forwards everything to another one and, while it is switched on, measures each
// operation and copy: it records an event before and after it on its stream and asks the device for
// the time between. Switched off it costs a virtual call.
//
// Measured steps may block the host and allocate: they are no benchmark. Where streams run side by
// side (a GPU), measured times overlap too.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lib/base/names.h"
#include "trainer/device/device.h"

namespace tessera::trainer {

// The class that an operation's time counts as.
enum class OpClass : std::uint8_t {
  gemm,
  attention,
  memory_bound,  // every other operation, and copies on other streams than Stream::copy
  optimizer,     // all of Phase::update
  offload,       // copies on Stream::copy
};

// The total of all operations of one name and phase.
struct OpTotal {
  std::string_view name;   // op_name(), or "copy"
  std::string_view phase;  // "forward", "recompute", "backward", "update"; "" for copies
  OpClass kind = OpClass::memory_bound;
  std::int64_t count = 0;
  double seconds = 0;
  double bytes = 0;         // cost().bytes; a copy reads and writes each byte
  double matmul_flops = 0;  // cost().matmul_flops
};

class ProfilingDevice final : public Device {
 public:
  // Profiling uses the upper half of the events: Error(internal) if the device's user records one
  // of them.
  static constexpr Event kFirstEvent = kEvents / 2;

  explicit ProfilingDevice(Device& device) : device_(device) {}

  void begin();
  // Waits for everything measured since begin() and returns the totals in order of first use.
  std::vector<OpTotal> end();

  const DeviceInfo& info() const override { return device_.info(); }
  std::byte* allocate(Pool pool, std::int64_t bytes) override {
    return device_.allocate(pool, bytes);
  }
  std::int64_t workspace_bytes(const Op& op) const override { return device_.workspace_bytes(op); }
  void prepare(std::span<const Op> all, std::span<std::byte> workspace) override {
    device_.prepare(all, workspace);
  }
  void seal() override { device_.seal(); }
  void run(Stream stream, const Op& op, Tag tag) override;
  void copy(Stream stream, void* dst, const void* src, std::int64_t bytes) override;
  void record(Stream stream, Event event) override;
  void wait(Stream stream, Event event) override { device_.wait(stream, event); }
  void host_wait(Event event) override { device_.host_wait(event); }
  double seconds(Event from, Event to) override { return device_.seconds(from, to); }

 private:
  template <class Issue>
  void measure(Stream stream, const OpTotal& one, Issue issue);
  void drain();

  Device& device_;
  bool on_ = false;
  std::vector<OpTotal> totals_;
  std::vector<std::size_t> pending_;  // indices into totals_ of operations with open events
};

}  // namespace tessera::trainer

namespace tessera {
template <>
struct Names<trainer::OpClass> {
  using enum trainer::OpClass;
  static constexpr std::pair<trainer::OpClass, std::string_view> table[] = {
      {gemm, "gemm"},
      {attention, "attention"},
      {memory_bound, "memory_bound"},
      {optimizer, "optimizer"},
      {offload, "offload"}};
};
template <>
struct Names<trainer::Phase> {
  using enum trainer::Phase;
  static constexpr std::pair<trainer::Phase, std::string_view> table[] = {
      {forward, "forward"}, {recompute, "recompute"}, {backward, "backward"}, {update, "update"}};
};
}  // namespace tessera
