// SPDX-License-Identifier: Apache-2.0
// The rounding points of docs/precision.md: attention, rotary positions and activations.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/trainer/device/rounding.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

using enum DType;

// Two query heads for each kv head, and a sequence longer than attention's tiles.
constexpr AttentionShape kShape{2, 100, 4, 2, 24, 0.2F};
constexpr std::int64_t kWidth = (4 + 2 * 2) * 24;
constexpr std::int64_t kOutWidth = 4 * 24;
constexpr std::int64_t kAllRows = 2 * 100;

using Round = double (*)(double);
double exact(double x) {
  return x;
}

std::size_t at(std::int64_t row, std::int64_t column, std::int64_t width) {
  return static_cast<std::size_t>(row * width + column);
}

struct Head {
  std::int64_t first_row, q, k, v, out, lse;
};

template <class F>
void for_heads(F f) {
  const AttentionShape& s = kShape;
  for (std::int64_t batch = 0; batch < s.batch; ++batch) {
    for (std::int64_t head = 0; head < s.q_heads; ++head) {
      const std::int64_t kv = head / (s.q_heads / s.kv_heads);
      f(Head{batch * s.seq, head * s.head_dim, (s.q_heads + kv) * s.head_dim,
             (s.q_heads + s.kv_heads + kv) * s.head_dim, head * s.head_dim,
             (batch * s.q_heads + head) * s.seq});
    }
  }
}

double dot(const Values& a, std::size_t i, const Values& b, std::size_t j) {
  double sum = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(kShape.head_dim); ++d)
    sum += a[i + d] * b[j + d];
  return sum;
}

double scaled_score(const Values& qkv, const Head& head, std::int64_t query, std::int64_t key) {
  return static_cast<double>(kShape.scale) * dot(qkv, at(head.first_row + query, head.q, kWidth),
                                                 qkv, at(head.first_row + key, head.k, kWidth));
}

// The error of an f32 number relative to its size, and what it means after rounding: 0, or a step
// of bf16 if the number lies between two.
constexpr double kF32Error = 0x1p-19;
double doubt(double x, double size, Round round) {
  return round(x + kF32Error * size) - round(x - kF32Error * size);
}

struct Forward {
  Values out = Values(kAllRows * kOutWidth);
  Values size = Values(kAllRows * kOutWidth);   // sum of p |v|
  Values doubt = Values(kAllRows * kOutWidth);  // what the rounding of p leaves open of it
  Values lse = Values(kShape.batch * kShape.q_heads * kShape.seq);
};

// Softmax over the whole row. `of_score`, `of_p` and `of_sum` round what their names say; of_sum
// after each 64 keys.
Forward forward(const Values& qkv, Round of_score = exact, Round of_p = exact,
                Round of_sum = exact) {
  Forward f;
  for_heads([&](const Head& head) {
    for (std::int64_t query = 0; query < kShape.seq; ++query) {
      Values scores;
      double sum = 0;
      for (std::int64_t key = 0; key <= query; ++key) {
        scores.push_back(of_score(scaled_score(qkv, head, query, key)));
        sum += std::exp(scores.back());
      }
      const double lse = std::log(sum);
      f.lse[static_cast<std::size_t>(head.lse + query)] = lse;
      const std::size_t to = at(head.first_row + query, head.out, kOutWidth);
      for (std::size_t d = 0; d < static_cast<std::size_t>(kShape.head_dim); ++d) {
        for (std::int64_t key = 0; key <= query; ++key) {
          const double exact_p = std::exp(scores[static_cast<std::size_t>(key)] - lse);
          const double p = of_p(exact_p);
          const double v = qkv[at(head.first_row + key, head.v, kWidth) + d];
          f.out[to + d] += p * v;
          f.size[to + d] += p * std::abs(v);
          f.doubt[to + d] += doubt(exact_p, exact_p, of_p) * std::abs(v);
          if (key % 64 == 63) f.out[to + d] = of_sum(f.out[to + d]);
        }
      }
    }
  });
  return f;
}

struct Backward {
  Values dqkv = Values(kAllRows * kWidth);
  Values size = Values(kAllRows * kWidth);  // sum of the absolute terms
  Values doubt =
      Values(kAllRows * kWidth);  // the same of what the rounding of p and dS leaves open
};

enum class SoftmaxGradient : bool { of_rounded_p, of_exact_p };

// Backward from the stored out and lse. `of_p` and `of_ds` as above; `of_head` rounds the gradients
// of keys and values after each query head.
Backward backward(const Values& qkv, const Values& out, const Values& lse, const Values& dout,
                  Round of_p = exact, Round of_ds = exact, Round of_head = exact,
                  SoftmaxGradient gradient = SoftmaxGradient::of_rounded_p) {
  Backward b;
  const auto scale = static_cast<double>(kShape.scale);
  const auto dims = static_cast<std::size_t>(kShape.head_dim);
  for_heads([&](const Head& head) {
    for (std::int64_t query = 0; query < kShape.seq; ++query) {
      const std::size_t o = at(head.first_row + query, head.out, kOutWidth);
      const std::size_t q = at(head.first_row + query, head.q, kWidth);
      const double row_sum = dot(dout, o, out, o);
      for (std::int64_t key = 0; key <= query; ++key) {
        const std::size_t k = at(head.first_row + key, head.k, kWidth);
        const std::size_t v = at(head.first_row + key, head.v, kWidth);
        const double exact_p = std::exp(scaled_score(qkv, head, query, key) -
                                        lse[static_cast<std::size_t>(head.lse + query)]);
        const double p = of_p(exact_p);
        const double dp = dot(dout, o, qkv, v);
        const double exact_ds =
            scale * (gradient == SoftmaxGradient::of_exact_p ? exact_p : p) * (dp - row_sum);
        const double ds = of_ds(exact_ds);
        const double ds_size = scale * p * (std::abs(dp) + std::abs(row_sum) + 1);
        const double p_doubt = doubt(exact_p, exact_p, of_p);
        const double ds_doubt = doubt(exact_ds, ds_size, of_ds);
        for (std::size_t d = 0; d < dims; ++d) {
          b.dqkv[q + d] += ds * qkv[k + d];
          b.dqkv[k + d] += ds * qkv[q + d];
          b.dqkv[v + d] += p * dout[o + d];
          b.size[q + d] += ds_size * std::abs(qkv[k + d]);
          b.size[k + d] += ds_size * std::abs(qkv[q + d]);
          b.size[v + d] += p * std::abs(dout[o + d]);
          b.doubt[q + d] += ds_doubt * std::abs(qkv[k + d]);
          b.doubt[k + d] += ds_doubt * std::abs(qkv[q + d]);
          b.doubt[v + d] += p_doubt * std::abs(dout[o + d]);
        }
      }
    }
    for (std::int64_t key = 0; key < kShape.seq; ++key) {
      for (const std::int64_t column : {head.k, head.v}) {
        for (std::size_t d = 0; d < dims; ++d) {
          double& x = b.dqkv[at(head.first_row + key, column, kWidth) + d];
          x = of_head(x);
        }
      }
    }
  });
  return b;
}

Values scaled_by(const Values& x, double factor) {
  return map(x, [factor](double value) { return value * factor; });
}

// Returns some columns of dqkv.
Values columns(const Values& x, std::int64_t begin, std::int64_t end) {
  Values part;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto column = static_cast<std::int64_t>(i) % kWidth;
    if (column >= begin && column < end) part.push_back(x[i]);
  }
  return part;
}

}  // namespace

TEST_CASE(
    "attention rounds out and dqkv once; scores, probabilities and their gradients stay f32, but "
    "where they are rounded for their products") {
  const Values qkv = normal(1, kAllRows * kWidth, bf16);
  const Values dout = normal(2, kAllRows * kOutWidth, bf16);
  const Forward f = forward(qkv);
  const Values out = to_bf16(f.out);
  const Values lse = to_f32(f.lse);
  struct Expected {
    Forward forward;
    Backward backward;
    WrongWays out, queries, keys, values;
  };
  // Expected results of a device that rounds P and dS (`rounded`), and of one that does not.
  const auto expected = [&](bool rounded) {
    const Round right = rounded ? round_to_bf16 : exact;
    const Round other = rounded ? exact : round_to_bf16;
    const SoftmaxGradient gradient =
        rounded ? SoftmaxGradient::of_exact_p : SoftmaxGradient::of_rounded_p;
    const auto stored_of = [&](Round score, Round p, Round sum) {
      return to_bf16(forward(qkv, score, p, sum).out);
    };
    const auto stored_gradient = [&](Round p, Round ds, Round head) {
      return to_bf16(backward(qkv, out, lse, dout, p, ds, head, gradient).dqkv);
    };
    const std::string dtype = rounded ? "f32" : "bf16";
    const Values other_p = stored_gradient(other, right, exact);
    const Values other_ds = stored_gradient(right, other, exact);
    const Values by_head = stored_gradient(right, right, round_to_bf16);
    Expected e{forward(qkv, exact, right),
               backward(qkv, out, lse, dout, right, right, exact, gradient),
               {{"scores in bf16", stored_of(round_to_bf16, right, exact)},
                {"probabilities in " + dtype, stored_of(exact, other, exact)},
                {"sum in bf16", stored_of(exact, right, round_to_bf16)}},
               {{"dS in " + dtype, other_ds}},
               {{"dS in " + dtype, other_ds}, {"by head of queries", by_head}},
               {{"p in " + dtype, other_p}, {"by head of queries", by_head}}};
    if (rounded) {
      const Values rounded_twice = to_bf16(
          backward(qkv, out, lse, dout, right, right, exact, SoftmaxGradient::of_rounded_p).dqkv);
      e.queries["dS of the rounded p"] = rounded_twice;
      e.keys["dS of the rounded p"] = rounded_twice;
    } else {
      e.queries["p in bf16"] = other_p;
      e.keys["p in bf16"] = other_p;
    }
    return e;
  };
  const Expected in_f32 = expected(false);
  const Expected in_bf16 = expected(true);
  with_each_bench([&](Bench& bench) {
    const bool rounds = bench.tested().rounds_probabilities;
    const Expected& e = rounds ? in_bf16 : in_f32;
    const auto slack = [&](const Values& size, const Values& doubt) {
      return map(scaled_by(size, 0x1p-18), doubt,
                 [&](double x, double y) { return rounds ? x + y : x; });
    };
    const Tensor input = bench.in(bf16, kAllRows, kWidth, qkv);
    const Tensor to = bench.out(bf16, kAllRows, kOutWidth);
    const Tensor log_sums = bench.out(f32, kShape.batch * kShape.q_heads, kShape.seq);
    bench.run(AttentionForward{kShape, input, to, log_sums});
    check_rounded_once(Bench::read(to),
                       {bf16, e.forward.out, slack(e.forward.size, e.forward.doubt)}, e.out);
    check_rounded_once(Bench::read(log_sums), {f32, f.lse, Values(f.lse.size(), 4e-6)});

    const Tensor dqkv = bench.out(bf16, kAllRows, kWidth);
    bench.run(AttentionBackward{kShape, input, bench.in(bf16, kAllRows, kOutWidth, out),
                                bench.in(f32, log_sums.rows, log_sums.cols, lse),
                                bench.in(bf16, kAllRows, kOutWidth, dout), dqkv,
                                bench.out(f32, log_sums.rows, log_sums.cols)});
    const Values stored = Bench::read(dqkv);
    const std::int64_t keys = kShape.q_heads * kShape.head_dim;
    const std::int64_t values = keys + kShape.kv_heads * kShape.head_dim;
    const Values all_slack = slack(e.backward.size, e.backward.doubt);
    const auto check = [&](std::int64_t begin, std::int64_t end, const WrongWays& wrong) {
      WrongWays part;
      for (const auto& [way, all] : wrong) part[way] = columns(all, begin, end);
      check_rounded_once(
          columns(stored, begin, end),
          {bf16, columns(e.backward.dqkv, begin, end), columns(all_slack, begin, end)}, part);
    };
    check(0, keys, e.queries);
    check(keys, values, e.keys);
    check(values, kWidth, e.values);
  });
}

TEST_CASE("rotary positions round each element once and leave position 0 and the values alone") {
  constexpr std::int64_t kHalf = 12;
  constexpr double kTheta = 10000;
  const Values qkv = normal(1, kAllRows * kWidth, bf16);
  for (const bool back : {false, true}) {
    const auto rotated = [&](Round of_angle, Round of_product) {
      Values y = qkv;
      for (std::int64_t row = 0; row < kAllRows; ++row) {
        for (std::int64_t pair = 0; pair < (4 + 2) * kHalf; ++pair) {
          const std::int64_t i = pair % kHalf;
          const double angle = static_cast<double>(row % kShape.seq) *
                               std::pow(kTheta, -static_cast<double>(i) / kHalf) * (back ? -1 : 1);
          const double cosine = of_angle(std::cos(angle));
          const double sine = of_angle(std::sin(angle));
          const std::size_t low = at(row, pair / kHalf * 2 * kHalf + i, kWidth);
          const std::size_t high = low + kHalf;
          y[low] = of_product(qkv[low] * cosine) - of_product(qkv[high] * sine);
          y[high] = of_product(qkv[high] * cosine) + of_product(qkv[low] * sine);
        }
      }
      return y;
    };
    const Values y = rotated(exact, exact);
    Values slack(y.size());
    for (std::size_t i = 0; i < y.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i) / kWidth;
      const auto column = static_cast<std::int64_t>(i) % kWidth;
      if (row % kShape.seq == 0 || column >= (4 + 2) * 2 * kHalf) continue;
      const std::size_t other = column / kHalf % 2 == 0 ? i + kHalf : i - kHalf;
      slack[i] = 0x1p-22 * (std::abs(qkv[i]) + std::abs(qkv[other]));
    }
    with_each_bench([&](Bench& bench) {
      const Tensor t = bench.in(bf16, kAllRows, kWidth, qkv);
      bench.run(Rope{kShape, t, kTheta, back});
      check_rounded_once(Bench::read(t), {bf16, y, slack},
                         {{"cosines and sines in bf16", to_bf16(rotated(round_to_bf16, exact))},
                          {"rounded products", to_bf16(rotated(exact, round_to_bf16))}});
    });
  }
}

namespace {

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
// The gate of y = x gate(x), and its derivative.
double gate(model::Activation kind, double x) {
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  switch (kind) {
    case model::Activation::gelu_erf:
      return 0.5 * std::erfc(-x / std::sqrt(2.0));
    case model::Activation::gelu_tanh:
      return 0.5 * (1 + std::tanh(u));
    case model::Activation::swiglu:
      break;
  }
  return sigmoid(x);
}
double gate_slope(model::Activation kind, double x) {
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  switch (kind) {
    case model::Activation::gelu_erf:
      return std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
    case model::Activation::gelu_tanh:
      return 0.5 / std::pow(std::cosh(u), 2) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
    case model::Activation::swiglu:
      break;
  }
  return sigmoid(x) * (1 - sigmoid(x));
}

}  // namespace

// The error of the vector functions is 1e-6 relative in the gate
// (trainer/device/cpu/kernel/math.h), more if tanh's argument is large.
TEST_CASE("activations round y and dx once, not the gate or its product with one factor") {
  constexpr std::int64_t kRows = 13;
  constexpr std::int64_t kCols = 67;
  for (const model::Activation kind :
       {model::Activation::gelu_erf, model::Activation::gelu_tanh, model::Activation::swiglu}) {
    const bool swiglu = kind == model::Activation::swiglu;
    CAPTURE(to_text(kind));
    const Values x = normal(1, kRows * kCols, bf16, 1.2);
    const Values up = swiglu ? normal(2, kRows * kCols, bf16) : Values(x.size(), 1.0);
    const Values dy = normal(3, kRows * kCols, bf16);
    Exact y;
    Exact dx;
    Exact dup;
    WrongWays wrong_y;
    WrongWays wrong_dx;
    WrongWays wrong_dup;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double g = gate(kind, x[i]);
      const double steep = x[i] * gate_slope(kind, x[i]);
      const double slope = g + steep;
      y.values.push_back(x[i] * g * up[i]);
      y.slack.push_back(3e-6 * std::abs(y.values.back()));
      wrong_y["rounded gate"].push_back(round_to_bf16(x[i] * round_to_bf16(g) * up[i]));
      dx.values.push_back(dy[i] * up[i] * slope);
      dx.slack.push_back(3e-6 * std::abs(dy[i] * up[i]) * (g + std::abs(steep)));
      wrong_dx["rounded slope"].push_back(round_to_bf16(dy[i] * up[i] * round_to_bf16(slope)));
      if (!swiglu) continue;
      wrong_y["rounded silu"].push_back(round_to_bf16(round_to_bf16(x[i] * g) * up[i]));
      wrong_dx["rounded dy up"].push_back(round_to_bf16(round_to_bf16(dy[i] * up[i]) * slope));
      dup.values.push_back(dy[i] * x[i] * g);
      dup.slack.push_back(3e-6 * std::abs(dup.values.back()));
      wrong_dup["rounded silu"].push_back(round_to_bf16(dy[i] * round_to_bf16(x[i] * g)));
    }
    // Rows are [gate | up], or x alone.
    Values input;
    for (std::size_t r = 0; r < kRows; ++r) {
      const auto row = [&](const Values& of) {
        const auto begin = of.begin() + static_cast<std::ptrdiff_t>(r * kCols);
        input.insert(input.end(), begin, begin + kCols);
      };
      row(x);
      if (swiglu) row(up);
    }
    const std::int64_t width = swiglu ? 2 * kCols : kCols;
    with_each_bench([&](Bench& bench) {
      const Tensor from = bench.in(bf16, kRows, width, input);
      const Tensor to = bench.out(bf16, kRows, kCols);
      bench.run(ActForward{kind, from, to});
      check_rounded_once(Bench::read(to), y, wrong_y);
      const Tensor back = bench.out(bf16, kRows, width);
      bench.run(ActBackward{kind, from, bench.in(bf16, kRows, kCols, dy), back});
      Values of_x;
      Values of_up;
      const Values stored = Bench::read(back);
      for (std::size_t i = 0; i < stored.size(); ++i)
        (i % static_cast<std::size_t>(width) < kCols ? of_x : of_up).push_back(stored[i]);
      check_rounded_once(of_x, dx, wrong_dx);
      if (swiglu) check_rounded_once(of_up, dup, wrong_dup);
    });
  }
}
