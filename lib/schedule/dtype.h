// SPDX-License-Identifier: Apache-2.0
// Element types and the memory pools and streams that plans and devices speak of.
#pragma once

#include <cstdint>

#include "lib/base/names.h"

namespace tessera {

enum class DType : std::uint8_t {
  f64,  // finite-difference tests on the CPU only
  f32,
  bf16,
  i32,
};

template <>
struct Names<DType> {
  static constexpr std::pair<DType, std::string_view> table[] = {
      {DType::f64, "f64"}, {DType::f32, "f32"}, {DType::bf16, "bf16"}, {DType::i32, "i32"}};
};

constexpr std::int64_t bytes_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
      return 2;
  }
  return 0;
}

enum class Pool : std::uint8_t {
  device,
  communication,  // registered with the communicator
  pinned,         // host memory that copies to and from the device
};
inline constexpr int kPools = 3;

enum class Stream : std::uint8_t { compute, gather, reduce, copy };
inline constexpr int kStreams = 4;

}  // namespace tessera
