// SPDX-License-Identifier: Apache-2.0
// The vector functions against libm in f64, and the random numbers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "trainer/device/random.h"
#include "trainer/selftest/run_case.h"

using namespace tessera;
using namespace tessera::trainer;

namespace {

using Function = void (*)(const float*, float*, std::int64_t);

// Returns the largest relative error over [low, high]; infinity for a result that is not finite.
double relative_error(Function f, double (*exact)(double), float low, float high) {
  constexpr std::int64_t kPoints = 200'003;
  std::vector<float> x(kPoints);
  std::vector<float> y(kPoints);
  for (std::int64_t i = 0; i < kPoints; ++i) {
    x[static_cast<std::size_t>(i)] =
        low + (high - low) * static_cast<float>(i) / static_cast<float>(kPoints - 1);
  }
  f(x.data(), y.data(), kPoints);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double truth = exact(static_cast<double>(x[i]));
    const double error = std::abs(static_cast<double>(y[i]) / truth - 1);
    if (!std::isfinite(error)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, error);
  }
  return worst;
}

float at(Function f, float x) {
  float y = 0;
  f(&x, &y, 1);
  return y;
}

double exact_exp(double x) {
  return std::exp(x);
}
double exact_cdf(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0));
}
double exact_sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

}  // namespace

TEST_CASE("exp, the normal distribution and the logistic function are as exact as documented") {
  for (const cpu::Kernels* kernels : cpu::supported_kernels()) {
    CAPTURE(kernels->isa);
    const auto& k = kernels->compute32;
    CHECK(relative_error(k.exp, exact_exp, -87.3F, 88.7F) < 2e-7);
    CHECK(relative_error(k.normal_cdf, exact_cdf, -5, 10) < 1e-6);
    CHECK(relative_error(k.normal_cdf, exact_cdf, -12, -5) < 4e-6);
    CHECK(relative_error(k.sigmoid, exact_sigmoid, -85, 85) < 4e-7);
  }
}

TEST_CASE("the vector functions at their ends") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const cpu::Kernels* kernels : cpu::supported_kernels()) {
    CAPTURE(kernels->isa);
    const auto& k = kernels->compute32;
    CHECK(at(k.exp, 0) == 1);
    CHECK(at(k.exp, -kInfinity) == 0);
    CHECK(at(k.exp, -88) == 0);  // would not be normal
    CHECK(at(k.exp, kInfinity) == kInfinity);
    CHECK(at(k.exp, 88.8F) == kInfinity);
    CHECK(std::isnan(at(k.exp, kNan)));
    CHECK(at(k.normal_cdf, 0) == doctest::Approx(0.5));
    CHECK(at(k.normal_cdf, -kInfinity) == 0);
    CHECK(at(k.normal_cdf, kInfinity) == 1);
    CHECK(std::isnan(at(k.normal_cdf, kNan)));
    CHECK(at(k.sigmoid, 0) == 0.5F);
    CHECK(at(k.sigmoid, -kInfinity) == 0);
    CHECK(at(k.sigmoid, kInfinity) == 1);
    CHECK(std::isnan(at(k.sigmoid, kNan)));
  }
}

TEST_CASE("bf16 is rounded to nearest even, NaN and infinity kept") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<std::pair<float, std::uint16_t>> values{
      {1.0F, 0x3F80},        {1.00390625F, 0x3F80},  // halfway, to even below
      {1.01171875F, 0x3F82},                         // halfway, to even above
      {1.0039064F, 0x3F81},  {-0.0F, 0x8000},       {kInfinity, 0x7F80},
      {-kInfinity, 0xFF80},  {3.4e38F, 0x7F80},     {1e-40F, 0x0001}};
  for (const cpu::Kernels* kernels : cpu::supported_kernels()) {
    CAPTURE(kernels->isa);
    for (std::size_t n = 1; n <= 40; ++n) {  // a vector and its tail
      std::vector<float> x(n);
      std::vector<cpu::Bf16> y(n);
      for (std::size_t i = 0; i < n; ++i) x[i] = values[i % values.size()].first;
      kernels->bf16.store(x.data(), nullptr, y.data(), static_cast<std::int64_t>(n), false);
      for (std::size_t i = 0; i < n; ++i) {
        CAPTURE(x[i]);
        CHECK(y[i].bits == values[i % values.size()].second);
      }
      std::vector<float> nan(n, std::nanf(""));
      kernels->bf16.store(nan.data(), nullptr, y.data(), static_cast<std::int64_t>(n), false);
      kernels->bf16.load(y.data(), x.data(), static_cast<std::int64_t>(n));
      for (const float value : x) CHECK(std::isnan(value));
    }
  }
}

// The known-answer vectors that were published with the generator.
TEST_CASE("Philox4x32-10 gives the published words") {
  using Words = std::array<std::uint32_t, 4>;
  CHECK(philox({0, 0, 0, 0}, {0, 0}) == Words{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8});
  constexpr std::uint32_t kOnes = 0xFFFFFFFF;
  CHECK(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}) ==
        Words{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD});
  CHECK(philox({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}) ==
        Words{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1});
}

TEST_CASE("random parameters have the moments asked for, whoever fills which part") {
  constexpr std::int64_t kCount = 400'000;
  const auto device = cpu_device(2);
  std::vector<float> whole(kCount);
  const auto fill = [&](float* dst, std::int64_t n, std::uint64_t seed, std::uint64_t first) {
    device->run(Stream::compute, Init{{dst, DType::f32, 1, n, n}, 0.25F, 0.5F, seed, first}, {});
  };
  fill(whole.data(), kCount, 7, 0);
  double moments[5] = {};
  double neighbours = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const double z = (static_cast<double>(whole[i]) - 0.25) / 0.5;
    for (int power = 1; power <= 4; ++power) moments[power] += std::pow(z, power) / kCount;
    if (i > 0) neighbours += z * (static_cast<double>(whole[i - 1]) - 0.25) / 0.5 / kCount;
  }
  // Bounds are five standard deviations of each estimate.
  CHECK(std::abs(moments[1]) < 5 * std::sqrt(1.0 / kCount));
  CHECK(std::abs(moments[2] - 1) < 5 * std::sqrt(2.0 / kCount));
  CHECK(std::abs(moments[3]) < 5 * std::sqrt(15.0 / kCount));
  CHECK(std::abs(moments[4] - 3) < 5 * std::sqrt(96.0 / kCount));
  CHECK(std::abs(neighbours) < 5 * std::sqrt(1.0 / kCount));

  std::vector<float> parts(kCount);
  for (std::int64_t begin = 0, n = 1; begin < kCount; begin += n, n = n * 2 + 1) {
    fill(parts.data() + begin, std::min(n, kCount - begin), 7, static_cast<std::uint64_t>(begin));
  }
  CHECK(parts == whole);
  fill(parts.data(), kCount, 8, 0);
  CHECK(parts != whole);
  fill(parts.data(), 1, 7, std::uint64_t{1} << 40);
  CHECK(parts[0] != whole[0]);
}
