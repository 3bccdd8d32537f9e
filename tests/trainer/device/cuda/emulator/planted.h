// SPDX-License-Identifier: Apache-2.0
// Kernels with bugs that the emulator must find, and correct ones that look like them. They work on
// 256 floats x, which begin as 0, 1, 2, ...
#pragma once

#include <span>
#include <string_view>

namespace tessera::trainer::test {

inline constexpr int kPlantedFloats = 256;

struct Planted {
  std::string_view name;
  void (*run)(float* x);
};
std::span<const Planted> planted();

// Returns the kernel of that name. Throws std::logic_error if there is none.
const Planted& planted(std::string_view name);

}  // namespace tessera::trainer::test
