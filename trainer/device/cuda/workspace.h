// How a GPU's operations share their one workspace, and what of its memory nothing is in while
// operations are prepared. Pure: no GPU in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/memory/fused_attention.h"
#include "lib/memory/scratch.h"

namespace tessera::trainer::cuda {

// Products have the last kGemmWorkspaceBytes (all, if there are no more): attention that is not
// fused launches products while its own matrices lie in the workspace. Fused attention, which
// launches none, may take the whole.
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

// What is asked for, so that attention has `bytes`.
inline std::int64_t workspace_with(std::int64_t attention_bytes) {
  return memory::up_to_multiple(attention_bytes, memory::kWorkspaceAlignment) +
         memory::kGemmWorkspaceBytes;
}

// The larger of a pool's ends around what of the workspace is in it, from a multiple of
// memory::kWorkspaceAlignment on. The pool begins at one.
std::span<std::byte> free_around(std::span<std::byte> pool, std::span<const std::byte> workspace);

}  // namespace tessera::trainer::cuda
