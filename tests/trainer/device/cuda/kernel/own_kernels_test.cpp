// SPDX-License-Identifier: Apache-2.0
// Kernels beyond the table of cases: long rows, many heads, numbers that are not finite, and inputs
// that the loader never makes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/trainer/device/cuda/emulator/emulated_device.h"
#include "tests/trainer/device/rounding.h"
#include "trainer/device/cuda/kernels.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

using enum DType;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
const cuda::Launch kLaunch{nullptr, 3};

bool all_nan(const Values& x) {
  return std::all_of(x.begin(), x.end(), [](double value) { return std::isnan(value); });
}
bool all_finite(const Values& x) {
  return std::all_of(x.begin(), x.end(), [](double value) { return std::isfinite(value); });
}

// The scores of a sequence's last queries, NaN where they must not be read, and the results of
// softmax.
struct ScoreRows {
  AttentionShape s;
  std::int64_t rows;
  std::int64_t first_row = s.seq - rows;
  std::int64_t ld = (s.seq + 7) / 8 * 8;

  std::int64_t all_rows() const { return s.q_heads * rows; }
  // Fills a matrix with f(row of the matrices, head, query, key) where the query sees the key, and
  // with `other` elsewhere.
  template <class F>
  Values map(double other, F f) const {
    Values values(static_cast<std::size_t>(all_rows() * ld), other);
    for (std::int64_t i = 0; i < all_rows(); ++i) {
      const std::int64_t query = first_row + i % rows;
      for (std::int64_t key = 0; key <= query; ++key)
        values[static_cast<std::size_t>(i * ld + key)] = f(i, i / rows, query, key);
    }
    return values;
  }
  Values some(int number) const {
    return map(kNaN, [&](std::int64_t i, std::int64_t, std::int64_t, std::int64_t key) {
      return static_cast<double>(
          static_cast<float>(2 * std::sin(static_cast<double>(i * 37 + key * key + number))));
    });
  }
  Values scaled(const Values& scores) const {
    return map(
        -kInfinity, [&](std::int64_t i, std::int64_t head, std::int64_t query, std::int64_t key) {
          const auto bias_max = static_cast<double>(s.alibi_bias_max);
          const double slope = bias_max == 0 ? 0 : alibi_slope(head, s.q_heads, bias_max);
          return static_cast<double>(s.scale) * scores[static_cast<std::size_t>(i * ld + key)] +
                 slope * static_cast<double>(key - query);
        });
  }
  // Fills a statistic [heads, seq], with `other` for the queries that are not here.
  template <class F>
  Values statistics(double other, F of_row) const {
    Values values(static_cast<std::size_t>(s.q_heads * s.seq), other);
    for (std::int64_t i = 0; i < all_rows(); ++i)
      values[static_cast<std::size_t>(i / rows * s.seq + first_row + i % rows)] = of_row(i);
    return values;
  }
  double log_sum(const Values& scaled, std::int64_t i) const {
    double sum = 0;
    for (std::int64_t key = 0; key < ld; ++key)
      sum += std::exp(scaled[static_cast<std::size_t>(i * ld + key)]);
    return std::log(sum);
  }
  cuda::Scores at(const Tensor& scores) const {
    return {s, 0, 0, s.q_heads, first_row, rows, s.seq, ld, static_cast<float*>(scores.data)};
  }
};

// More heads than one launch takes, and rows long enough for the wide blocks.
const ScoreRows kManyHeads{{1, 20, 300, 300, 8, 0.5F, 8}, 3};
const ScoreRows kManyKeys{{1, 4203, 2, 2, 8, 2.0F, 0}, 3};

void with_bench(const std::function<void(Bench&)>& f) {
  TestedDevice tested{emulated_device()};
  Bench bench(tested);
  f(bench);
}

}  // namespace

TEST_CASE("softmax of many heads and of many keys, what is masked neither read nor left") {
  with_bench([](Bench& bench) {
    for (const ScoreRows* part : {&kManyHeads, &kManyKeys}) {
      const ScoreRows& at = *part;
      CAPTURE(at.s.seq);
      const Values scores = at.some(0);
      const Values dp = at.some(1);
      const Values scaled = at.scaled(scores);
      const Values lse = at.statistics(kNaN, [&](std::int64_t i) { return at.log_sum(scaled, i); });
      const Values sums =
          at.statistics(kNaN, [&](std::int64_t i) { return 0.25 * static_cast<double>(i % 5); });
      const Values p = at.map(0, [&](std::int64_t i, std::int64_t, std::int64_t, std::int64_t key) {
        const auto cell = static_cast<std::size_t>(i * at.ld + key);
        return std::exp(scaled[cell] - at.log_sum(scaled, i));
      });
      const Values ds =
          at.map(0, [&](std::int64_t i, std::int64_t, std::int64_t, std::int64_t key) {
            const auto cell = static_cast<std::size_t>(i * at.ld + key);
            return static_cast<double>(at.s.scale) * p[cell] *
                   (dp[cell] - 0.25 * static_cast<double>(i % 5));
          });
      for (const DType dtype : {f32, bf16}) {
        CAPTURE(bytes_of(dtype));
        const double tolerance = dtype == f32 ? 2e-6 : 4e-3;
        // f32 in place, as attention does it.
        const auto matrix = [&](const Values& values) {
          return bench.in(f32, at.all_rows(), at.ld, values);
        };
        const auto result = [&](const Tensor& in_place) {
          return dtype == f32 ? in_place : bench.out(dtype, at.all_rows(), at.ld);
        };
        const auto check = [&](const Tensor& stored, const Values& exact) {
          const Values values = Bench::read(stored);
          CHECK(distance(values, exact) <= tolerance);
          bool masked = true;
          for (std::size_t i = 0; i < exact.size(); ++i)
            masked = masked && (exact[i] != 0 || values[i] == 0);
          CHECK(masked);
        };
        const Tensor statistics = bench.out(f32, at.s.q_heads, at.s.seq);
        const Tensor forward = matrix(scores);
        const Tensor probabilities = result(forward);
        cuda::emulated::run(cuda::SoftmaxForward{at.at(forward), probabilities, statistics},
                            kLaunch);
        check(probabilities, p);
        const Values stored = Bench::read(statistics);
        bool near = true;
        for (std::size_t i = 0; i < lse.size(); ++i)
          near = near &&
                 (std::isnan(lse[i]) ? std::isnan(stored[i]) : std::abs(stored[i] - lse[i]) < 2e-6);
        CHECK(near);

        const Tensor backward = matrix(scores);
        const Tensor dprobabilities = matrix(dp);
        const Tensor again = result(backward);
        const Tensor dscores = result(dprobabilities);
        cuda::emulated::run(
            cuda::SoftmaxBackward{at.at(backward), static_cast<float*>(dprobabilities.data), again,
                                  dscores, bench.in(f32, at.s.q_heads, at.s.seq, lse),
                                  bench.in(f32, at.s.q_heads, at.s.seq, sums)},
            kLaunch);
        check(again, p);
        check(dscores, ds);
      }
    }
  });
}

TEST_CASE("one score that is not finite makes its row NaN and no other") {
  with_bench([](Bench& bench) {
    const ScoreRows at{{1, 100, 2, 2, 8, 1}, 4};
    for (const double bad : {kNaN, kInfinity}) {
      Values scores = at.some(0);
      constexpr std::int64_t kRow = 5;
      scores[static_cast<std::size_t>(kRow * at.ld + 70)] = bad;
      const Tensor p = bench.in(f32, at.all_rows(), at.ld, scores);
      const Tensor lse = bench.out(f32, at.s.q_heads, at.s.seq);
      cuda::emulated::run(cuda::SoftmaxForward{at.at(p), p, lse}, kLaunch);
      const Values stored = Bench::read(p);
      for (std::int64_t i = 0; i < at.all_rows(); ++i) {
        CAPTURE(i);
        const auto begin = stored.begin() + i * at.ld;
        const std::int64_t seen = at.first_row + i % at.rows + 1;
        const double log_sum =
            Bench::read(lse)[static_cast<std::size_t>(i / at.rows * at.s.seq + seen - 1)];
        CHECK(all_nan(Values(begin, begin + seen)) == (i == kRow));
        CHECK(all_finite(Values(begin, begin + seen)) == (i != kRow));
        CHECK(std::isfinite(log_sum) == (i != kRow));
        CHECK(std::all_of(begin + seen, begin + at.ld, [](double x) { return x == 0; }));
      }
    }
  });
}

// Rows are longer than one vector a thread, so that the bad logit may be any thread's.
TEST_CASE("the loss sees every logit that is not finite, and ignores classes that cannot be") {
  with_bench([](Bench& bench) {
    constexpr std::int64_t kCols = 8200;
    constexpr std::int64_t kVocab = 8195;
    const auto loss_of = [&](const Values& logits, std::int32_t target,
                             Values* gradient = nullptr) {
      const Tensor t = bench.in(f32, 1, kCols, logits);
      const Tensor row_loss = bench.out(f32, 1, 1);
      StepInputs in;
      in.inv_tokens = 1;
      const StepInputs* inputs = bench.inputs(in);
      StepState* state = bench.state();
      bench.run(CrossEntropy{t, bench.in(i32, 1, 1, {static_cast<double>(target)}), row_loss,
                             kVocab, inputs});
      bench.run(SumLoss{row_loss, inputs, state, false});
      if (gradient != nullptr) *gradient = Bench::read(t);
      return static_cast<double>(state->loss);
    };
    const Values logits = normal(1, kCols, f32);
    CHECK(std::isfinite(loss_of(logits, 17)));
    for (const std::size_t at :
         {std::size_t{0}, std::size_t{17}, std::size_t{5000}, std::size_t{8194}}) {
      for (const double bad : {kNaN, kInfinity}) {
        Values some = logits;
        some[at] = bad;
        CHECK_FALSE(std::isfinite(loss_of(some, 17)));
      }
    }
    // Nothing beyond the vocabulary counts.
    Values behind = logits;
    behind[kVocab] = kNaN;
    CHECK(loss_of(behind, 17) == loss_of(logits, 17));
    // All classes but two are impossible: threads that see neither of the two add nothing.
    Values two(kCols, -kInfinity);
    two[17] = 1;
    two[5000] = 3;
    Values gradient;
    CHECK(loss_of(two, 17, &gradient) == doctest::Approx(std::log(1 + std::exp(2.0))));
    CHECK(gradient[5000] == doctest::Approx(1 / (1 + std::exp(-2.0))));
    CHECK(gradient[17] == doctest::Approx(-1 / (1 + std::exp(-2.0))));
    CHECK(std::count(gradient.begin(), gradient.end(), 0.0) == kCols - 2);
    // The loader never makes this target.
    CHECK(std::isnan(loss_of(logits, kVocab)));
    CHECK(std::isnan(loss_of(logits, std::numeric_limits<std::int32_t>::max())));
  });
}

TEST_CASE("a token outside of the table is a row of NaN, and no other row") {
  with_bench([](Bench& bench) {
    for (const std::int64_t cols : {13, 16}) {
      const Tensor y = bench.out(bf16, 4, cols);
      Embed op{bench.in(i32, 1, 4, {2, 5, -1, 4}),
               bench.in(bf16, 5, cols, normal(1, 5 * cols, bf16)),
               {},
               y,
               2};
      for (const bool positions : {false, true}) {
        if (positions) op.positions = bench.in(bf16, 2, cols, normal(2, 2 * cols, bf16));
        bench.run(op);
        const Values stored = Bench::read(y);
        for (std::int64_t row = 0; row < 4; ++row) {
          const Values of_row(stored.begin() + row * cols, stored.begin() + (row + 1) * cols);
          const bool known = row == 0 || row == 3;
          CHECK(all_finite(of_row) == known);
          CHECK(all_nan(of_row) == !known);
        }
      }
    }
  });
}
