// SPDX-License-Identifier: Apache-2.0
// A part of the step as a list of pieces of work, in the order of issue.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "trainer/device/device.h"

namespace tessera::trainer {

struct Copy {
  void* dst = nullptr;
  const void* src = nullptr;
  std::int64_t bytes = 0;
};

// A sum over the ranks, in place.
struct AllReduce {
  Tensor tensor;  // flat
};

using Work = std::variant<Op, Copy, AllReduce>;

struct Issue {
  Work work;
  std::int16_t unit = 0;
  Phase phase = Phase::forward;
  int tick = 0;  // time in the memory plan's schedule, which has one microbatch
  Stream stream = Stream::compute;
  // Returns the operation; nullptr for a copy or a collective.
  const Op* op() const { return std::get_if<Op>(&work); }
};

using Sequence = std::vector<Issue>;

}  // namespace tessera::trainer
