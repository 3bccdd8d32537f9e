// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/device/rounding.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <new>

#include "trainer/device/random.h"

namespace tessera::trainer::test {
namespace {

double rounded(double x, DType dtype) {
  return dtype == DType::bf16 ? round_to_bf16(x) : static_cast<double>(static_cast<float>(x));
}

std::size_t misses(const Values& stored, const Exact& exact) {
  REQUIRE(stored.size() == exact.values.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const double slack = exact.slack.empty() ? 0 : exact.slack[i];
    const double low = rounded(exact.values[i] - slack, exact.dtype);
    const double high = rounded(exact.values[i] + slack, exact.dtype);
    if (!(stored[i] >= low && stored[i] <= high)) ++count;
  }
  return count;
}

// Rounds towards zero.
double cut_to_bf16(double x) {
  const double nearest = round_to_bf16(x);
  if (std::abs(nearest) <= std::abs(x)) return nearest;
  const double unit = std::ldexp(1.0, std::ilogb(x) - 7);
  return std::trunc(x / unit) * unit;
}

}  // namespace

void check_rounded_once(const Values& stored, const Exact& exact, const WrongWays& wrong) {
  CHECK(misses(stored, exact) == 0);
  WrongWays all = wrong;
  if (exact.dtype == DType::bf16) {
    all["cut off"] = map(exact.values, cut_to_bf16);
  } else {
    all["rounded to bf16"] = to_bf16(exact.values);
  }
  for (const auto& [way, values] : all) {
    CAPTURE(way);
    CHECK(20 * misses(values, exact) >= values.size());
  }
}

Values map(const Values& x, const std::function<double(double)>& f) {
  Values y;
  y.reserve(x.size());
  for (const double value : x) y.push_back(f(value));
  return y;
}

Values map(const Values& x, const Values& y, const std::function<double(double, double)>& f) {
  REQUIRE(x.size() == y.size());
  Values z;
  z.reserve(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) z.push_back(f(x[i], y[i]));
  return z;
}

Values to_bf16(const Values& x) {
  return map(x, round_to_bf16);
}

Values to_f32(const Values& x) {
  return map(x, [](double value) { return rounded(value, DType::f32); });
}

Values normal(std::uint64_t seed, std::int64_t count, DType dtype, double scale, double shift) {
  Values values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = rounded(normal_pair(seed, i / 2)[i % 2] * scale + shift, dtype);
  return values;
}

Values whole(std::uint64_t seed, std::int64_t count, int limit) {
  return map(normal(seed, count, DType::f32, limit / 2.0), [&](double x) {
    return std::clamp(std::nearbyint(x), static_cast<double>(-limit), static_cast<double>(limit));
  });
}

Tensor Bench::in(DType dtype, std::int64_t rows, std::int64_t cols, const Values& values) {
  REQUIRE(static_cast<std::int64_t>(values.size()) == rows * cols);
  Tensor t{memory_(rows * cols * bytes_of(dtype)), dtype, rows, cols, cols};
  auto* bytes = static_cast<std::byte*>(t.data);
  for (const double value : values) {
    from_double(value, bytes, dtype);
    bytes += bytes_of(dtype);
  }
  return t;
}

Tensor Bench::out(DType dtype, std::int64_t rows, std::int64_t cols) {
  return in(
      dtype, rows, cols,
      Values(static_cast<std::size_t>(rows * cols), std::numeric_limits<double>::quiet_NaN()));
}

const StepInputs* Bench::inputs(const StepInputs& inputs) {
  return new (memory_(sizeof(inputs))) StepInputs(inputs);
}

StepState* Bench::state() {
  return new (memory_(sizeof(StepState))) StepState;
}

void Bench::run(const Op& op) {
  const std::int64_t workspace = tested_.device->workspace_bytes(op);
  const std::vector<Op> ops{op};
  tested_.device->prepare(ops, {memory_(workspace), static_cast<std::size_t>(workspace)});
  tested_.device->run(Stream::compute, op, {});
}

Values Bench::read(const Tensor& t) {
  Values values;
  const auto* bytes = static_cast<const std::byte*>(t.data);
  for (std::int64_t i = 0; i < t.rows * t.cols; ++i)
    values.push_back(to_double(bytes + i * bytes_of(t.dtype), t.dtype));
  return values;
}

void with_each_bench(const std::function<void(Bench&)>& f) {
  with_each_device([&](TestedDevice& tested) {
    Bench bench(tested);
    f(bench);
  });
}

}  // namespace tessera::trainer::test
