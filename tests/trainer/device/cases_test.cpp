// SPDX-License-Identifier: Apache-2.0
// Every case of the table: gradients against finite differences in f64, then f32 and bf16 against
// f64, then the same bits in a second run.
#include <doctest/doctest.h>

#include <cmath>

#include "trainer/device/random.h"
#include "trainer/selftest/run_case.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

double objective(const Case& c, const Outcome& outcome) {
  double sum = 0;
  for (const auto& [output, weight] : c.objective) {
    const Values& y = outcome.values.at(output);
    for (std::size_t i = 0; i < y.size(); ++i) {
      sum += y[i] * (weight.empty() ? c.constant_weight : outcome.values.at(weight)[i]);
    }
  }
  return sum;
}

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Values direction(std::size_t size, std::uint64_t seed) {
  Values d(size);
  for (std::size_t i = 0; i < size; ++i) d[i] = normal_pair(seed, i / 2)[i % 2];
  return d;
}

// Returns a case's own values of an input: what an arena holds before a run.
Values initial(const Case& c, const std::string& name) {
  const auto device = cpu_device(1);
  HostMemory memory;
  const Overrides none;
  CheckArena arena(*device, DType::f64, [&](std::int64_t bytes) { return memory(bytes); }, none);
  c.build(arena);
  return arena.values(name);
}

}  // namespace

TEST_CASE("gradients agree with central differences") {
  for (const Case& c : cases()) {
    if (c.gradients.empty()) continue;
    CAPTURE(c.name);
    const Outcome base = run_case(c, DType::f64);
    for (const auto& [input, gradient] : c.gradients) {
      CAPTURE(input);
      const Values x = initial(c, input);
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        const Values d = direction(x.size(), seed);
        constexpr double kStep = 1e-5;
        Values up = x;
        Values down = x;
        for (std::size_t i = 0; i < x.size(); ++i) {
          up[i] += kStep * d[i];
          down[i] -= kStep * d[i];
        }
        const double above = objective(c, run_case(c, DType::f64, 2, {{input, up}}));
        const double below = objective(c, run_case(c, DType::f64, 2, {{input, down}}));
        const Values& grad = base.values.at(gradient);
        const double expected = (above - below) / (2 * kStep);
        const double scale = std::sqrt(dot(grad, grad) * dot(d, d) / static_cast<double>(d.size()));
        CHECK(std::abs(dot(grad, d) - expected) <= 1e-7 * scale + 1e-9);
      }
    }
  }
}

TEST_CASE("f32 and bf16 agree with f64 for every table of kernels") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    const Outcome reference = run_case(c, c.has_f64 ? DType::f64 : DType::f32);
    CHECK(reference.overrun.empty());
    for (const cpu::Kernels* kernels : cpu::supported_kernels()) {
      CAPTURE(kernels->isa);
      for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
        if (dtype == DType::f64 && !c.has_f64) continue;
        CAPTURE(bytes_of(dtype));
        const Outcome outcome = run_case(c, dtype, 2, {}, kernels);
        CHECK(outcome.overrun.empty());
        CHECK(!outcome.compared.empty());
        for (const std::string& name : outcome.compared) {
          CAPTURE(name);
          if (!c.has_f64 && !reference.values.contains(name)) continue;
          const double tolerance = dtype == DType::f64   ? 1e-12
                                   : dtype == DType::f32 ? c.f32_tolerance
                                                         : c.bf16_tolerance;
          CHECK(distance(outcome.values.at(name), reference.values.at(name)) <= tolerance);
        }
      }
    }
  }
}

TEST_CASE("the same bits twice, the same values with one thread and with three") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      CAPTURE(bytes_of(dtype));
      const Outcome two = run_case(c, dtype, 2);
      CHECK(run_case(c, dtype, 2).bytes == two.bytes);
      for (const int threads : {1, 3}) {
        const Outcome other = run_case(c, dtype, threads);
        // All operations promise equal bits except GEMM, whose sums OpenBLAS splits by threads.
        if (c.name.find("linear") == std::string::npos &&
            c.name.find("gemm") == std::string::npos) {
          CHECK(other.bytes == two.bytes);
        }
        for (const std::string& name : two.compared) {
          CAPTURE(name);
          CHECK(distance(other.values.at(name), two.values.at(name)) <=
                (dtype == DType::f32 ? c.f32_tolerance : c.bf16_tolerance));
        }
      }
    }
  }
}
