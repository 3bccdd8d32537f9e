// SPDX-License-Identifier: Apache-2.0
// How a GPU's operations share their one workspace, and which device memory is free while
// operations are prepared. Pure: no GPU in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/memory/fused_attention.h"
#include "lib/memory/scratch.h"

namespace tessera::trainer::cuda {

// GEMMs have the last kGemmWorkspaceBytes (all, if there are no more): unfused attention launches
// GEMMs while its own matrices lie in the workspace. Fused attention, which launches none, may take
// the whole.
struct WorkspaceParts {
  std::span<std::byte> attention;
  std::span<std::byte> gemm;
};
inline WorkspaceParts parts_of(std::span<std::byte> workspace) {
  constexpr auto kProducts = static_cast<std::size_t>(memory::kGemmWorkspaceBytes);
  if (workspace.size() <= kProducts) return {.attention = {}, .gemm = workspace};
  const std::size_t before =
      (workspace.size() - kProducts) / memory::kWorkspaceAlignment * memory::kWorkspaceAlignment;
  return {.attention = workspace.first(before), .gemm = workspace.subspan(before, kProducts)};
}

// Returns the workspace bytes that leave `attention_bytes` to attention.
inline std::int64_t workspace_with(std::int64_t attention_bytes) {
  return memory::up_to_multiple(attention_bytes, memory::kWorkspaceAlignment) +
         memory::kGemmWorkspaceBytes;
}

// Returns the larger of the two ends of a pool that the workspace leaves free, from a multiple of
// memory::kWorkspaceAlignment on. The pool begins at one.
std::span<std::byte> free_around(std::span<std::byte> pool, std::span<const std::byte> workspace);

}  // namespace tessera::trainer::cuda
