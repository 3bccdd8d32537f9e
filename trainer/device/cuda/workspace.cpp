// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/workspace.h"

#include <algorithm>
#include <functional>

namespace tessera::trainer::cuda {

std::span<std::byte> free_around(std::span<std::byte> pool, std::span<const std::byte> workspace) {
  const std::byte* const begin = pool.data();
  const std::byte* const end = begin + pool.size();
  // std::less orders pointers into two allocations, < does not.
  const auto within = [&](const std::byte* p) {
    return std::clamp(p, begin, end, std::less<const std::byte*>());
  };
  if (workspace.empty()) return pool;
  const auto before = static_cast<std::size_t>(within(workspace.data()) - begin);
  const auto after = static_cast<std::size_t>(within(workspace.data() + workspace.size()) - begin);
  if (before == after) return pool;
  const std::size_t from =
      std::min<std::size_t>(static_cast<std::size_t>(memory::up_to_multiple(
                                static_cast<std::int64_t>(after), memory::kWorkspaceAlignment)),
                            pool.size());
  return before >= pool.size() - from ? pool.first(before) : pool.subspan(from);
}

}  // namespace tessera::trainer::cuda
