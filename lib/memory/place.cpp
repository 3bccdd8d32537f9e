// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "lib/memory/plan.h"

namespace tessera::memory {

namespace {

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

}  // namespace

std::array<std::int64_t, kPools> place(std::vector<Buffer>& buffers, int ticks) {
  std::vector<std::size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto always = [&](const Buffer& buffer) {
    return buffer.first == 0 && buffer.last == ticks - 1;
  };
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    const bool always_a = always(buffers[a]);
    const bool always_b = always(buffers[b]);
    if (always_a != always_b) return always_a;
    if (!always_a && buffers[a].bytes != buffers[b].bytes)
      return buffers[a].bytes > buffers[b].bytes;
    return a < b;
  });

  std::array<std::int64_t, kPools> pool_bytes{};
  std::array<std::vector<const Buffer*>, kPools> placed;  // by offset
  for (const std::size_t index : order) {
    Buffer& buffer = buffers[index];
    const auto pool = static_cast<std::size_t>(buffer.pool);
    // The lowest gap between those that live at the same time.
    std::int64_t offset = 0;
    for (const Buffer* other : placed[pool]) {
      if (other->last < buffer.first || buffer.last < other->first) continue;
      if (offset + buffer.bytes <= other->offset) break;
      offset = std::max(offset, aligned(other->offset + other->bytes));
    }
    buffer.offset = offset;
    pool_bytes[pool] = std::max(pool_bytes[pool], offset + aligned(buffer.bytes));
    const auto after = std::ranges::upper_bound(placed[pool], offset, {},
                                                [](const Buffer* other) { return other->offset; });
    placed[pool].insert(after, &buffer);
  }
  return pool_bytes;
}

}  // namespace tessera::memory
