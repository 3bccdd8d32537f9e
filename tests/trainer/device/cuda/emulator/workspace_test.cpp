// SPDX-License-Identifier: Apache-2.0
// How a GPU's operations share their workspace, and what part of a pool it leaves free.
#include "trainer/device/cuda/workspace.h"

#include <doctest/doctest.h>

#include <vector>

namespace tessera::trainer::cuda {

namespace {

constexpr std::int64_t kProducts = memory::kGemmWorkspaceBytes;

// Only sizes and addresses matter here.
std::span<std::byte> span_of(std::int64_t address, std::int64_t bytes) {
  return {reinterpret_cast<std::byte*>(address), static_cast<std::size_t>(bytes)};
}

}  // namespace

TEST_CASE("unfused attention and the GEMMs that it launches have separate parts") {
  constexpr std::int64_t kBase = 1 << 20;
  for (const std::int64_t attention : {0, 1, 255, 256, 257, 1000, 1 << 26}) {
    CAPTURE(attention);
    const std::int64_t bytes = workspace_with(attention);
    for (const std::int64_t more : {0, 1, 255, 256, 12345}) {
      const std::span<std::byte> whole = span_of(kBase, bytes + more);
      const WorkspaceParts parts = parts_of(whole);
      CHECK(std::ssize(parts.gemm) == kProducts);
      CHECK(std::ssize(parts.attention) >= attention);
      CHECK(reinterpret_cast<std::uintptr_t>(parts.gemm.data()) % 256 == 0);
      if (!parts.attention.empty()) CHECK(parts.attention.data() == whole.data());
      CHECK(parts.attention.size() <= static_cast<std::size_t>(parts.gemm.data() - whole.data()));
      CHECK(&parts.gemm.back() <= &whole.back());
    }
  }
  const std::span<std::byte> little = span_of(kBase, 1000);
  CHECK(parts_of(little).gemm.size() == 1000);
  CHECK(parts_of(little).attention.empty());
}

TEST_CASE("what is left of a pool beside the workspace is its larger end") {
  const std::span<std::byte> pool = span_of(4096, 10000);
  const auto left = [&](std::int64_t from, std::int64_t bytes) {
    const std::span<std::byte> found = free_around(pool, span_of(4096 + from, bytes));
    return std::pair{found.data() - pool.data(), std::ssize(found)};
  };
  using Part = std::pair<std::ptrdiff_t, std::ptrdiff_t>;
  CHECK(left(0, 1000) == Part{1024, 8976});
  CHECK(left(2560, 1000) == Part{3584, 6416});
  CHECK(left(6400, 1000) == Part{0, 6400});
  CHECK(left(9984, 16) == Part{0, 9984});
  CHECK(left(0, 10000).second == 0);
  CHECK(left(0, 9999).second == 0);
  // The workspace lies elsewhere, or there is none.
  CHECK(left(10000, 500) == Part{0, 10000});
  CHECK(left(-600, 600) == Part{0, 10000});
  CHECK(free_around(pool, {}).size() == pool.size());
}

}  // namespace tessera::trainer::cuda
