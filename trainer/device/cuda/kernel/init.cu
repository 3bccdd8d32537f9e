// SPDX-License-Identifier: Apache-2.0
// Random parameters, the same numbers as trainer/device/random.h: Philox and Box-Muller in f64, a
// pair of normal numbers a thread and iteration. It runs once and f64 bounds it, so loads are not
// vectorized. Rounded to f32, and to bf16 from there.
#include "trainer/device/cuda/kernel/elements.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {
namespace {

constexpr int kThreads = 256;

struct PhiloxWords {
  std::uint32_t at[4];
};

// Philox4x32-10 (Salmon et al. 2011) of the counter (pair, 0) and the key `seed`.
SIMT_FUNCTION PhiloxWords philox(std::uint64_t pair, std::uint64_t seed) {
  constexpr std::uint32_t kMultiplier0 = 0xD2511F53;
  constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57;
  std::uint32_t counter[4] = {static_cast<std::uint32_t>(pair),
                              static_cast<std::uint32_t>(pair >> 32), 0, 0};
  std::uint32_t key[2] = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  SIMT_UNROLL
  for (int round = 0; round < 10; ++round) {
    const std::uint32_t high0 = multiply_high(kMultiplier0, counter[0]);
    const std::uint32_t high1 = multiply_high(kMultiplier1, counter[2]);
    const std::uint32_t low0 = kMultiplier0 * counter[0];
    const std::uint32_t low1 = kMultiplier1 * counter[2];
    counter[0] = high1 ^ counter[1] ^ key[0];
    counter[1] = low1;
    counter[2] = high0 ^ counter[3] ^ key[1];
    counter[3] = low0;
    key[0] += 0x9E3779B9;  // golden ratio
    key[1] += 0xBB67AE85;  // sqrt(3) - 1
  }
  return {{counter[0], counter[1], counter[2], counter[3]}};
}

// Returns a number in [0, 1), a multiple of 2^-53.
SIMT_FUNCTION double unit(std::uint32_t low, std::uint32_t high) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(high) << 32) | low;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

template <class D>
SIMT_KERNEL(kThreads)
void init(std::int64_t elements, std::uint64_t first_index, std::uint64_t seed, double mean,
          double stddev, D* dst) {
  // Element i is normal number first_index + i, one half of a pair. The first and the last pair may
  // lie partly outside.
  const std::uint64_t first_pair = first_index / 2;
  const auto skipped = static_cast<std::int64_t>(first_index % 2);
  for (std::int64_t turn = block() * kThreads + thread(); 2 * turn - skipped < elements;
       turn += blocks() * kThreads) {
    const PhiloxWords word = philox(first_pair + static_cast<std::uint64_t>(turn), seed);
    constexpr double kTwoPi = 6.283185307179586476925;
    const double u1 = 1.0 - unit(word.at[0], word.at[1]);  // exact: a multiple of 2^-53
    const double angle = kTwoPi * unit(word.at[2], word.at[3]);
    const double radius = std::sqrt(-2.0 * std::log(u1));
    const double normal[2] = {radius * std::cos(angle), radius * std::sin(angle)};
    SIMT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const std::int64_t i = 2 * turn - skipped + half;
      if (i >= 0 && i < elements)
        dst[i] = from_float<D>(static_cast<float>(mean + stddev * normal[half]));
    }
  }
}

template <bool kVectorized, class D>
SIMT_KERNEL(kThreads)
void fill(GridStrideLoop loop, float value, D* dst) {
  loop.each_vector<kThreads>([&](std::int64_t, std::int64_t at, std::int64_t remaining) {
    const float all[kVecSize] = {value, value, value, value, value, value, value, value};
    store<kVectorized>(dst + at, remaining, all);
  });
}

}  // namespace

void run(const Init& op, const Launch& where) {
  const std::int64_t elements = op.dst.rows * op.dst.cols;
  Tensor flat = op.dst;
  flat.rows = 1;
  flat.cols = flat.ld = elements;
  with_storage(op.dst.dtype, [&]<class D>() {
    auto* const dst = static_cast<D*>(op.dst.data);
    if (op.stddev == 0) {
      const GridStrideLoop loop{1, elements};
      with_vectorization(is_vectorizable({&flat}), [&]<bool kVectorized>() {
        launch("fill", fill<kVectorized, D>, loop.grid(kThreads, where), kThreads, where, loop,
               op.mean, dst);
      });
      return;
    }
    const GridStrideLoop pairs{1, (elements / 2 + 1) * kVecSize};  // a pair a thread
    launch("init", init<D>, pairs.grid(kThreads, where), kThreads, where, elements, op.first_index,
           op.seed, static_cast<double>(op.mean), static_cast<double>(op.stddev), dst);
  });
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
