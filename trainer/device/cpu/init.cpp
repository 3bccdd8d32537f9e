// SPDX-License-Identifier: Apache-2.0
// Random parameters. Element i is normal number first_index + i of its seed, whichever thread or
// rank fills it. Rounded to the element's type, to bf16 by way of f32.
#include <array>

#include "trainer/device/cpu/operations.h"
#include "trainer/device/cpu/typed.h"
#include "trainer/device/random.h"

namespace tessera::trainer::cpu {
namespace {

template <class T>
void fill(const Init& op, T* dst, std::int64_t begin, std::int64_t end) {
  const auto scale = static_cast<double>(op.stddev);
  const auto mean = static_cast<double>(op.mean);
  if (op.stddev == 0) {
    std::fill(dst + begin, dst + end, static_cast<T>(op.mean));
    return;
  }
  std::int64_t i = begin;
  while (i < end) {
    const std::uint64_t index = op.first_index + static_cast<std::uint64_t>(i);
    const auto normal = normal_pair(op.seed, index / 2);
    for (std::uint64_t half = index % 2; half < 2 && i < end; ++half, ++i) {
      dst[i] = static_cast<T>(mean + scale * normal[half]);
    }
  }
}

}  // namespace

void run(const Init& op, const Context& context) {
  const std::int64_t n = op.dst.rows * op.dst.cols;
  for_blocks(1, n, [&](std::int64_t, std::int64_t begin, std::int64_t count) {
    if (op.dst.dtype == DType::f64) {
      fill<double>(op, elements<double>(op.dst), begin, begin + count);
    } else if (op.dst.dtype == DType::f32) {
      fill<float>(op, elements<float>(op.dst), begin, begin + count);
    } else {
      // bf16 gets the f32 numbers of the master weights, rounded like their copy for compute.
      std::array<float, kBlock> block;
      fill<float>(op, block.data() - begin, begin, begin + count);
      context.kernels.bf16.store(block.data(), nullptr, elements<Bf16>(op.dst) + begin, count,
                                 false);
    }
  });
}

}  // namespace tessera::trainer::cpu
