// SPDX-License-Identifier: Apache-2.0
// Sums that depend on the order or the number of roundings, with results worked out by hand.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/trainer/comm/ranks.h"
#include "tests/trainer/comm/values.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

// Returns what all ranks hold after an all_reduce_sum of one element each, of a small one and as
// the last of many, and rank 0 after a reduce_scatter_sum. NaN unless these and all communicators
// agree.
double sum_over_ranks(DType dtype, const std::vector<double>& terms) {
  constexpr std::int64_t kMany = 1000;
  const auto ranks = static_cast<int>(terms.size());
  std::vector<double> all;
  for (Kind& kind : kinds(ranks)) {
    std::vector<double> reduced(terms.size());
    std::vector<double> last(terms.size());
    std::vector<double> scattered(terms.size());
    run_prepared(std::move(kind.communicators), [&](Communicator& communicator) {
      const auto rank = static_cast<std::size_t>(communicator.rank());
      Flat one = Flat::of(dtype, {terms[rank]});
      communicator.all_reduce_sum(Stream::reduce, one.tensor());
      reduced[rank] = one.at(0);
      Flat many(dtype, kMany);
      many.set(kMany - 1, terms[rank]);
      communicator.all_reduce_sum(Stream::reduce, many.tensor());
      last[rank] = many.at(kMany - 1);
      scattered[rank] = one.at(0);
      if (dtype == DType::f64) return;
      Flat full = Flat::of(dtype, std::vector<double>(terms.size(), terms[rank]));
      Flat shard(dtype, 1);
      communicator.reduce_scatter_sum(Stream::reduce, full.tensor(), shard.tensor());
      scattered[rank] = shard.at(0);
    });
    for (const auto& results : {reduced, last, scattered})
      all.insert(all.end(), results.begin(), results.end());
  }
  CHECK(all == std::vector<double>(all.size(), all[0]));
  for (const double each : all) CHECK(std::signbit(each) == std::signbit(all[0]));
  return all[0];
}

}  // namespace

TEST_CASE("sums are made in rank order") {
  CHECK(sum_over_ranks(DType::f32, {1e8, -1e8, 1}) == 1);
  CHECK(sum_over_ranks(DType::f32, {1, 1e8, -1e8}) == 0);
  CHECK(sum_over_ranks(DType::f32, {1e8, 1, -1e8}) == 0);
  CHECK(sum_over_ranks(DType::f64, {1e17, -1e17, 1}) == 1);
  CHECK(sum_over_ranks(DType::f64, {1, 1e17, -1e17}) == 0);
  // From 2^24 on f32 has no odd numbers. The pairwise sum (2^24 + 1) + (1 + 1) would give 2^24 + 2.
  CHECK(sum_over_ranks(DType::f32, {0x1p24, 1, 1, 1}) == 0x1p24);
  CHECK(sum_over_ranks(DType::f32, {1, 1, 1, 0x1p24}) == 0x1p24 + 4);  // 2^24 + 3, tie to even
  CHECK(sum_over_ranks(DType::bf16, {0x1p30, 1, -0x1p30}) == 0);
  CHECK(sum_over_ranks(DType::bf16, {0x1p30, -0x1p30, 1}) == 1);
}

TEST_CASE("a sum of bf16 is made in f32 and rounded once") {
  // bf16 has 8 bits: 1 + 2^-7 follows 1, and 1 + 2^-8 lies between and rounds to 1. Rounded after
  // each addition, both sums would stay 1.
  CHECK(sum_over_ranks(DType::bf16, {1, 0x1p-8, 0x1p-8}) == 1 + 0x1p-7);
  CHECK(sum_over_ranks(DType::bf16, {1, 0x1p-9, 0x1p-9, 0x1p-9}) == 1 + 0x1p-7);  // 1 + 0.75 ulp
  // In f64 1 + 2^-8 + 2^-30 is past the middle; in f32 it is the middle, which rounds to even.
  CHECK(sum_over_ranks(DType::bf16, {1, 0x1p-8, 0x1p-30}) == 1);
  CHECK(sum_over_ranks(DType::bf16, {1, 0x1p-8, 0x1p-23}) == 1 + 0x1p-7);
  // Ties go to even, up and down, on both sides of zero.
  CHECK(sum_over_ranks(DType::bf16, {1, 0x1p-8}) == 1);
  CHECK(sum_over_ranks(DType::bf16, {1 + 0x1p-7, 0x1p-8}) == 1 + 0x1p-6);
  CHECK(sum_over_ranks(DType::bf16, {-1 - 0x1p-7, -0x1p-8}) == -1 - 0x1p-6);
}

TEST_CASE("f64 is summed in f64") {
  CHECK(sum_over_ranks(DType::f64, {1, 0x1p-52}) == 1 + 0x1p-52);
  CHECK(sum_over_ranks(DType::f64, {1e300, 1e300}) == 2e300);
}

TEST_CASE("zeros keep their sign, and what is not finite stays so") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    CAPTURE(std::string(name_of(dtype)));
    const double zero = sum_over_ranks(dtype, {-0.0, -0.0});
    CHECK(zero == 0);
    CHECK(std::signbit(zero));
    CHECK_FALSE(std::signbit(sum_over_ranks(dtype, {-0.0, 0.0})));
    CHECK(sum_over_ranks(dtype, {1, kInfinity}) == kInfinity);
    CHECK(sum_over_ranks(dtype, {-kInfinity, 1}) == -kInfinity);
  }
  // The largest bf16 number and half of its unit more: the tie goes to the even one, infinity.
  const double largest = std::ldexp(255, 120);
  CHECK(sum_over_ranks(DType::bf16, {largest, std::ldexp(1, 119)}) == kInfinity);
  CHECK(sum_over_ranks(DType::bf16, {largest, std::ldexp(1, 118)}) == largest);
  // Terms: two infinities, a NaN, and the NaN of all ones, which a carry would turn into zero.
  for (Kind& kind : kinds(2)) {
    CAPTURE(kind.name);
    std::vector<Flat> tensors;
    for (int rank = 0; rank < 2; ++rank) {
      tensors.push_back(Flat::of(DType::bf16, {kInfinity, kNan, 1}));
    }
    tensors[1].set(0, -kInfinity);
    static_cast<std::uint16_t*>(tensors[0].tensor().data)[2] = 0xffff;
    run_prepared(std::move(kind.communicators), [&](Communicator& communicator) {
      communicator.all_reduce_sum(Stream::reduce,
                                  tensors[static_cast<std::size_t>(communicator.rank())].tensor());
    });
    for (const Flat& tensor : tensors) {
      for (std::int64_t i = 0; i < 3; ++i) CHECK(std::isnan(tensor.at(i)));
    }
    CHECK((tensors[0].bytes() == tensors[1].bytes()));
  }
}

TEST_CASE("the arithmetic of these tests rounds to bf16 as the format says") {
  CHECK(round_to(DType::bf16, 1 + 0x1p-8) == 1);
  CHECK(round_to(DType::bf16, 1 + 0x1p-8 + 0x1p-40) == 1 + 0x1p-7);
  CHECK(round_to(DType::bf16, 3.14159) == 3.140625);
  CHECK(round_to(DType::bf16, 0x1p-133) == 0x1p-133);  // the smallest
  CHECK(round_to(DType::bf16, 0x1p-134) == 0);
  CHECK(std::signbit(round_to(DType::bf16, -0.0)));
  CHECK(round_to(DType::bf16, 3.4e38) == std::numeric_limits<double>::infinity());
}
