// SPDX-License-Identifier: Apache-2.0
#include "lib/memory/report.h"

#include <algorithm>

namespace tessera::memory {

Report report(const Plan& plan) {
  const auto ticks = static_cast<int>(plan.actions.size());
  std::vector<std::int64_t> change(static_cast<std::size_t>(ticks) + 1, 0);
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.pool == Pool::pinned) continue;
    change[static_cast<std::size_t>(buffer.first)] += buffer.bytes;
    change[static_cast<std::size_t>(buffer.last) + 1] -= buffer.bytes;
  }
  Report result{.device_bytes = plan.device_bytes(),
                .pinned_bytes = plan.pool_bytes[static_cast<std::size_t>(Pool::pinned)]};
  std::int64_t live = 0;
  std::int64_t most = -1;
  for (int tick = 0; tick < ticks; ++tick) {
    live += change[static_cast<std::size_t>(tick)];
    if (live <= most) continue;
    most = live;
    result.peak_tick = tick;
  }
  for (const auto& [use, text] : Names<Use>::table) {
    std::int64_t bytes = 0;
    for (const Buffer& buffer : plan.buffers) {
      const bool lives = buffer.first <= result.peak_tick && result.peak_tick <= buffer.last;
      if (buffer.use == use && buffer.pool != Pool::pinned && lives) bytes += buffer.bytes;
    }
    if (bytes > 0) result.rows.push_back({use, bytes});
  }
  result.gaps = result.device_bytes - most;
  return result;
}

}  // namespace tessera::memory
