// SPDX-License-Identifier: Apache-2.0
// The memory of one case that is measured: given out from a base, filled by the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/selftest/arena.h"

namespace tessera::trainer {

class BenchArena final : public test::Arena {
 public:
  // `base` is only an address to it, 256-byte aligned. dtype: f32 or bf16.
  BenchArena(std::byte* base, DType dtype) : Arena(dtype), base_(base) {}

  Tensor integers(const std::vector<std::int32_t>& values) override;
  void compare(const std::string& /*name*/) override {}
  const StepInputs* inputs(const StepInputs& inputs) override;
  StepState* state(const StepState& state) override;

  // Operations that fill what a case reads: to be run once, before its own.
  const std::vector<Op>& fills() const { return fills_; }
  std::int64_t used_bytes() const { return used_bytes_; }
  // Copies what comes from the host to where it belongs.
  void upload(Device& device) const;

 private:
  struct Upload {
    std::byte* to;
    std::vector<std::byte> content;
  };

  Tensor filled(const std::string& name, const Layout& layout, double scale, double shift) override;
  Tensor empty(const std::string& name, const Layout& layout) override;
  std::byte* take(std::int64_t bytes);
  std::byte* bytes(const void* content, std::size_t size);

  std::byte* base_;
  std::int64_t used_bytes_ = 0;
  std::uint64_t seed_ = 1;
  std::vector<Op> fills_;
  std::vector<Upload> uploads_;
};

}  // namespace tessera::trainer
