// SPDX-License-Identifier: Apache-2.0
// A plan as a person reads it: what the device's memory is used for when it is fullest.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/memory/plan.h"

namespace tessera::memory {

struct Report {
  struct Row {
    Use use = Use::working;
    std::int64_t bytes = 0;
  };
  std::vector<Row> rows;          // uses that live at the peak, in the order of Use
  std::int64_t gaps = 0;          // allocated, but of no live buffer then
  std::int64_t device_bytes = 0;  // rows and gaps together: what is allocated
  std::int64_t pinned_bytes = 0;  // of the host
  int peak_tick = 0;              // the first with the most live bytes
};

Report report(const Plan& plan);

}  // namespace tessera::memory
