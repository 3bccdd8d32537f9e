// SPDX-License-Identifier: Apache-2.0
// A CPU device that delegates attention to another implementation.
#pragma once

#include <memory>
#include <type_traits>
#include <variant>

#include "trainer/device/device.h"

namespace tessera::trainer::test {

class AttentionDevice : public Device {
 public:
  const DeviceInfo& info() const override { return cpu_->info(); }
  std::byte* allocate(Pool pool, std::int64_t bytes) override {
    return cpu_->allocate(pool, bytes);
  }
  std::int64_t workspace_bytes(const Op& op) const override { return cpu_->workspace_bytes(op); }
  void prepare(std::span<const Op> all, std::span<std::byte> workspace) override {
    cpu_->prepare(all, workspace);
  }
  void seal() override { cpu_->seal(); }
  void run(Stream stream, const Op& op, Tag tag) override {
    std::visit(
        [&](const auto& o) {
          using T = std::decay_t<decltype(o)>;
          if constexpr (std::is_same_v<T, AttentionForward> ||
                        std::is_same_v<T, AttentionBackward>) {
            attend(o);
          } else {
            cpu_->run(stream, op, tag);
          }
        },
        op);
  }
  void copy(Stream stream, void* dst, const void* src, std::int64_t bytes) override {
    cpu_->copy(stream, dst, src, bytes);
  }
  void record(Stream stream, Event event) override { cpu_->record(stream, event); }
  void wait(Stream stream, Event event) override { cpu_->wait(stream, event); }
  void host_wait(Event event) override { cpu_->host_wait(event); }
  double seconds(Event from, Event to) override { return cpu_->seconds(from, to); }

 private:
  virtual void attend(const AttentionForward& op) = 0;
  virtual void attend(const AttentionBackward& op) = 0;

  std::unique_ptr<Device> cpu_ = cpu_device(1);
};

}  // namespace tessera::trainer::test
