// SPDX-License-Identifier: Apache-2.0
// AdamW against the published formula in f64, and the effect of clipping and NaN, on each device.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/trainer/device/each_device.h"
#include "trainer/device/random.h"
#include "trainer/selftest/run_case.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

// GPU kernels take one count element by element, the other vectorized.
constexpr std::size_t kCounts[] = {10'007, 10'008};
constexpr std::int64_t kDecayEnd = 6'001;

Tensor flat(std::vector<float>& x) {
  const auto n = static_cast<std::int64_t>(x.size());
  return {x.data(), DType::f32, 1, n, n};
}

std::vector<float> random_vector(std::uint64_t seed, std::size_t count) {
  std::vector<float> x(count);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(normal_pair(seed, i / 2)[i % 2]);
  }
  return x;
}

}  // namespace

TEST_CASE("AdamW follows the published formula over several steps") {
  with_each_device([](TestedDevice& tested) {
    for (const std::size_t count : kCounts) {
      CAPTURE(count);
      std::vector<float> master = random_vector(1, count);
      std::vector<float> m(count);
      std::vector<float> v(count);
      std::vector<std::uint16_t> param(count);
      std::vector<float> grad(count);
      StepInputs in;
      StepState state;
      AdamW op{flat(grad), flat(master), flat(m), flat(v), {}};
      const auto n = static_cast<std::int64_t>(count);
      op.param = {param.data(), DType::bf16, 1, n, n};
      op.decay_end = kDecayEnd;
      op.in = &in;
      op.state = &state;

      const Values start(master.begin(), master.end());
      Values theta = start;
      Values m64(count);
      Values v64(count);
      const double beta1 = static_cast<double>(op.beta1);
      const double beta2 = static_cast<double>(op.beta2);
      for (int step = 1; step <= 5; ++step) {
        const std::vector<float> next =
            random_vector(100 + static_cast<std::uint64_t>(step), count);
        std::copy(next.begin(), next.end(), grad.begin());  // the operation holds grad's address
        in.lr = 0.01F / static_cast<float>(step);
        in.weight_decay = 0.1F;
        in.step = step;
        in.bias1 = static_cast<float>(1 - std::pow(beta1, step));
        in.bias2 = static_cast<float>(1 - std::pow(beta2, step));
        state.clip = step % 2 == 0 ? 0.3F : 1.0F;
        tested.device->run(Stream::compute, op, {});
        for (std::size_t i = 0; i < theta.size(); ++i) {
          const double g = static_cast<double>(grad[i]) * static_cast<double>(state.clip);
          const double lr = static_cast<double>(in.lr);
          m64[i] = beta1 * m64[i] + (1 - beta1) * g;
          v64[i] = beta2 * v64[i] + (1 - beta2) * g * g;
          const double m_hat = m64[i] / (1 - std::pow(beta1, step));
          const double v_hat = v64[i] / (1 - std::pow(beta2, step));
          const double decay = i < kDecayEnd ? static_cast<double>(in.weight_decay) : 0;
          theta[i] -=
              lr * (m_hat / (std::sqrt(v_hat) + static_cast<double>(op.eps)) + decay * theta[i]);
        }
      }
      // The change is compared, not theta: beside theta a wrong update would be small.
      Values change;
      Values expected;
      for (std::size_t i = 0; i < theta.size(); ++i) {
        change.push_back(static_cast<double>(master[i]) - start[i]);
        expected.push_back(theta[i] - start[i]);
      }
      CHECK(distance(change, expected) < 2e-5);
      CHECK(distance(Values(m.begin(), m.end()), m64) < 1e-6);
      CHECK(distance(Values(v.begin(), v.end()), v64) < 1e-6);
      // Decay ends exactly at its element: without decay the change there would differ.
      for (const std::size_t i : {std::size_t{kDecayEnd} - 1, std::size_t{kDecayEnd}}) {
        CHECK(change[i] == doctest::Approx(expected[i]).epsilon(1e-3));
      }
      for (std::size_t i = 0; i < theta.size(); ++i) {
        const double rounded =
            to_double(reinterpret_cast<const std::byte*>(&param[i]), DType::bf16);
        std::byte expected_bytes[2];
        from_double(static_cast<double>(master[i]), expected_bytes, DType::bf16);
        CHECK(rounded == to_double(expected_bytes, DType::bf16));
      }
    }
  });
}

TEST_CASE("a step that is not finite changes nothing") {
  with_each_device([](TestedDevice& tested) {
    for (const std::size_t count : kCounts) {
      CAPTURE(count);
      std::vector<float> grad = random_vector(1, count);
      std::vector<float> master = random_vector(2, count);
      std::vector<float> m = random_vector(3, count);
      std::vector<float> v(count, 1.0F);
      std::vector<double> partials(
          static_cast<std::size_t>(squared_norm_partials(static_cast<std::int64_t>(count))));
      const auto before = master;
      const auto m_before = m;
      StepInputs in;
      in.lr = 0.1F;
      in.max_grad_norm = 1;
      StepState state;
      AdamW update{flat(grad), flat(master), flat(m), flat(v), {}};
      update.in = &in;
      update.state = &state;
      const auto step = [&] {
        tested.device->run(Stream::compute, SquaredNorm{flat(grad), partials.data()}, {});
        tested.device->run(
            Stream::compute,
            FinishNorm{partials.data(), static_cast<std::int64_t>(partials.size()), &in, &state},
            {});
        tested.device->run(Stream::compute, update, {});
      };
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                              std::numeric_limits<float>::infinity(), 3e38F}) {
        CAPTURE(bad);
        const auto good = grad;
        grad[4321] = bad;
        grad[17] = bad;  // 3e38 twice: a finite sum in f64, an infinite norm in f32
        step();
        CHECK(state.not_finite == 1);
        CHECK(master == before);
        CHECK(m == m_before);
        std::copy(good.begin(), good.end(), grad.begin());
      }
      // Squares exceed f32, their norm does not.
      const auto small = grad;
      grad[4321] = 3e30F;
      grad[17] = -4e30F;
      step();
      CHECK(state.not_finite == 0);
      CHECK(state.grad_norm == doctest::Approx(5e30));
      CHECK(state.clip == doctest::Approx(2e-31));
      std::copy(small.begin(), small.end(), grad.begin());
      std::copy(before.begin(), before.end(), master.begin());
      state.loss = std::numeric_limits<float>::quiet_NaN();
      step();
      CHECK(state.not_finite == 1);
      CHECK(master == before);
      state.loss = 2;
      step();
      CHECK(state.not_finite == 0);
      CHECK(state.clip == doctest::Approx(1 / static_cast<double>(state.grad_norm)));
      CHECK(master != before);
    }
  });
}

TEST_CASE("clipping starts at the threshold and 0 is none") {
  with_each_device([](TestedDevice& tested) {
    const double partials[] = {9, 16};
    StepInputs in;
    StepState state;
    const auto clip = [&](float threshold) {
      in.max_grad_norm = threshold;
      tested.device->run(Stream::compute, FinishNorm{partials, 2, &in, &state}, {});
      CHECK(state.grad_norm == 5.0F);
      return state.clip;
    };
    CHECK(clip(0) == 1.0F);
    CHECK(clip(5) == 1.0F);
    CHECK(clip(10) == 1.0F);
    CHECK(clip(2) == 0.4F);
  });
}
