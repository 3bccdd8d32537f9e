// SPDX-License-Identifier: Apache-2.0
// The rounding points of docs/precision.md: norms, with a residual stream in bf16 and in f32.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/trainer/device/rounding.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

using enum DType;

constexpr std::int64_t kRows = 23;
constexpr std::int64_t kCols = 67;
constexpr double kEps = 1e-5;

struct Statistics {
  Values mean;  // zeros for RMSNorm
  Values rstd;
};

Statistics statistics(model::Norm kind, const Values& x) {
  Statistics s;
  for (std::size_t r = 0; r < kRows; ++r) {
    double mean = 0;
    if (kind == model::Norm::layernorm)
      for (std::size_t c = 0; c < kCols; ++c) mean += x[r * kCols + c] / kCols;
    double squares = 0;
    for (std::size_t c = 0; c < kCols; ++c) squares += std::pow(x[r * kCols + c] - mean, 2) / kCols;
    s.mean.push_back(mean);
    s.rstd.push_back(1 / std::sqrt(squares + kEps));
  }
  return s;
}

Values normalised(const Values& x, const Statistics& s) {
  Values h(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) h[i] = (x[i] - s.mean[i / kCols]) * s.rstd[i / kCols];
  return h;
}

Values by_column(const Values& x, const Values& of_column, double (*f)(double, double)) {
  Values y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = f(x[i], of_column[i % kCols]);
  return y;
}

double times(double x, double y) {
  return x * y;
}

}  // namespace

TEST_CASE("a norm rounds y once, and the sum before it, which y and the statistics see") {
  for (const model::Norm kind : {model::Norm::layernorm, model::Norm::rmsnorm}) {
    for (const bool wide : {false, true}) {
      CAPTURE(wide);
      const DType stream = wide ? f32 : bf16;
      const Values x = normal(1, kRows * kCols, stream, 2, 0.5);
      const Values add = normal(2, kRows * kCols, bf16, 0.5);
      const Values gain = normal(3, kCols, stream, 0.3, 1);
      const Values bias = normal(4, kCols, stream);
      const Values total = to_f32(map(x, add, added));
      const Values sum = wide ? total : to_bf16(total);
      const auto y_of = [&](const Values& of, const Values& g) {
        return by_column(by_column(normalised(of, statistics(kind, of)), g, times), bias, added);
      };
      const Statistics stats = statistics(kind, sum);
      const Values h = normalised(sum, stats);
      const Values scaled = by_column(h, gain, times);
      Exact y{bf16, y_of(sum, gain)};
      for (std::size_t i = 0; i < h.size(); ++i) {
        y.slack.push_back(0x1p-20 * (std::abs(gain[i % kCols]) * (1 + 3 * std::abs(h[i])) +
                                     std::abs(bias[i % kCols])));
      }
      WrongWays wrong{
          {"normalised, then rounded",
           to_bf16(by_column(by_column(to_bf16(h), gain, times), bias, added))},
          {"rounded before the bias", to_bf16(by_column(to_bf16(scaled), bias, added))}};
      if (wide) {
        wrong["of the sum in bf16"] = to_bf16(y_of(to_bf16(total), gain));
        wrong["gain in bf16"] = to_bf16(y_of(sum, to_bf16(gain)));
      } else {
        wrong["of the sum in f32"] = to_bf16(y_of(total, gain));
      }
      Exact mean{f32, stats.mean, Values(kRows, 2e-6)};
      Exact rstd{f32, stats.rstd, map(stats.rstd, [](double s) { return s * 1e-6; })};
      with_each_bench([&](Bench& bench) {
        for (const bool in_place : {false, true}) {
          const Tensor stream_in = bench.in(stream, kRows, kCols, x);
          NormForward op{kind,
                         static_cast<float>(kEps),
                         stream_in,
                         bench.in(bf16, kRows, kCols, add),
                         in_place ? stream_in : bench.out(stream, kRows, kCols),
                         bench.out(bf16, kRows, kCols),
                         bench.in(stream, 1, kCols, gain),
                         bench.in(stream, 1, kCols, bias),
                         bench.out(f32, 1, kRows),
                         bench.out(f32, 1, kRows)};
          bench.run(op);
          check_rounded_once(Bench::read(op.sum), {stream, total});
          check_rounded_once(Bench::read(op.y), y, wrong);
          if (kind == model::Norm::layernorm) check_rounded_once(Bench::read(op.mean), mean);
          check_rounded_once(Bench::read(op.rstd), rstd);
          // Without an addend, x = sum must give the same.
          op.x = op.sum;
          op.add = op.sum = {};
          op.y = bench.out(bf16, kRows, kCols);
          bench.run(op);
          check_rounded_once(Bench::read(op.y), y, wrong);
        }
      });
    }
  }
}

TEST_CASE("a norm's gradient is added to the residual gradient before its one rounding") {
  for (const model::Norm kind : {model::Norm::layernorm, model::Norm::rmsnorm}) {
    for (const bool wide : {false, true}) {
      CAPTURE(wide);
      const DType stream = wide ? f32 : bf16;
      const bool centred = kind == model::Norm::layernorm;
      const Values sum = normal(1, kRows * kCols, stream, 2, 0.5);
      const Values dy = normal(2, kRows * kCols, bf16);
      const Values dsum_in = normal(3, kRows * kCols, stream);
      const Values gain = normal(4, kCols, stream, 0.3, 1);
      Statistics stats = statistics(kind, sum);
      stats.mean = to_f32(stats.mean);
      stats.rstd = to_f32(stats.rstd);
      const Values h = normalised(sum, stats);
      Values slack(sum.size());
      const auto gradient = [&](const Values& g) {
        Values result(g.size());
        for (std::size_t r = 0; r < kRows; ++r) {
          double mean_g = 0;
          double mean_gh = 0;
          double size = 0;
          for (std::size_t c = 0; c < kCols; ++c) {
            const std::size_t i = r * kCols + c;
            if (centred) mean_g += g[i] / kCols;
            mean_gh += g[i] * h[i] / kCols;
            size += std::abs(g[i]) * (1 + std::abs(h[i])) / kCols;
          }
          for (std::size_t c = 0; c < kCols; ++c) {
            const std::size_t i = r * kCols + c;
            result[i] = stats.rstd[r] * (g[i] - mean_g - h[i] * mean_gh);
            slack[i] = 0x1p-21 * (stats.rstd[r] * (std::abs(g[i]) + (1 + std::abs(h[i])) * size) +
                                  std::abs(dsum_in[i]));
          }
        }
        return result;
      };
      const Values g = by_column(dy, gain, times);
      const Values of_rounded = map(gradient(to_bf16(g)), dsum_in, added);
      const Values grad = gradient(g);
      const Values first_rounded = map(to_bf16(grad), dsum_in, added);
      const Exact dsum{stream, map(grad, dsum_in, added), slack};
      const Exact alone{stream, grad, slack};
      const WrongWays wrong{
          {"rounded before the addition", wide ? first_rounded : to_bf16(first_rounded)},
          {"dy gain rounded", wide ? of_rounded : to_bf16(of_rounded)}};

      const auto column_sums = [&](const Values& terms) {
        Values sums(kCols);
        for (std::size_t i = 0; i < terms.size(); ++i) sums[i % kCols] += terms[i];
        return sums;
      };
      const auto tolerance = [&](const Values& terms) {
        return map(column_sums(map(terms, [](double t) { return std::abs(t); })),
                   [](double t) { return t * 0x1p-21; });
      };
      const Values dy_h = map(dy, h, times);
      const Exact dgain{f32, column_sums(dy_h), tolerance(dy_h)};
      const Exact dbias{f32, column_sums(dy), tolerance(dy)};
      const WrongWays rounded_terms{{"rounded terms", column_sums(to_bf16(dy_h))}};
      with_each_bench([&](Bench& bench) {
        for (const bool in_place : {false, true}) {
          const Tensor from_above = bench.in(stream, kRows, kCols, dsum_in);
          NormBackward op{kind,
                          bench.in(bf16, kRows, kCols, dy),
                          from_above,
                          bench.in(stream, kRows, kCols, sum),
                          bench.in(stream, 1, kCols, gain),
                          bench.in(f32, 1, kRows, stats.mean),
                          bench.in(f32, 1, kRows, stats.rstd),
                          in_place ? from_above : bench.out(stream, kRows, kCols),
                          bench.out(f32, 1, kCols),
                          bench.out(f32, 1, kCols),
                          bench.out(f32, 1, norm_partials(kRows, kCols))};
          bench.run(op);
          check_rounded_once(Bench::read(op.dsum), dsum, wrong);
          check_rounded_once(Bench::read(op.dgain), dgain, rounded_terms);
          check_rounded_once(Bench::read(op.dbias), dbias);
          op.dsum_in = {};
          bench.run(op);
          check_rounded_once(Bench::read(op.dsum), alone);
        }
      });
    }
  }
}
