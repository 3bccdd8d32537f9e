// SPDX-License-Identifier: Apache-2.0
// The rounding points of docs/precision.md: GEMMs, sums over rows, casts, embeddings, the loss and
// the update.
#include "tests/trainer/device/rounding.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

using enum DType;

// op(A) op(B), summed over `from` <= l < `to` of the inner dimension.
struct Product {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;
  Values a, b;

  Values sum(std::int64_t from, std::int64_t to,
             const std::function<double(double sum, double product)>& add = added) const {
    Values d(static_cast<std::size_t>(m * n));
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double& sum = d[static_cast<std::size_t>(i * n + j)];
        for (std::int64_t l = from; l < to; ++l) {
          sum = add(sum, a[static_cast<std::size_t>(transpose_a ? l * m + i : i * k + l)] *
                             b[static_cast<std::size_t>(transpose_b ? j * k + l : l * n + j)]);
        }
      }
    }
    return d;
  }
  Gemm op(Bench& bench, const Tensor& d, bool accumulate = false) const {
    return {bench.in(bf16, transpose_a ? k : m, transpose_a ? m : k, a),
            bench.in(bf16, transpose_b ? n : k, transpose_b ? k : n, b),
            d,
            transpose_a,
            transpose_b,
            accumulate};
  }
};

Values repeated_rows(const Values& row, std::int64_t rows) {
  Values all;
  for (std::int64_t r = 0; r < rows; ++r) all.insert(all.end(), row.begin(), row.end());
  return all;
}

// A sum that is rounded to bf16 after each term.
double added_in_bf16(double x, double y) {
  return round_to_bf16(x + y);
}

}  // namespace

// Sums of whole numbers are exact in f32 in any order, so the result is known bit by bit.
TEST_CASE("a GEMM rounds the sum of products, bias and old D once") {
  constexpr std::int64_t kM = 37;
  constexpr std::int64_t kN = 29;
  // The second shape is larger than a block that the device converts at a time.
  for (const auto& [k, limit, part] :
       {std::tuple<std::int64_t, int, std::int64_t>{40, 16, 20},
        std::tuple<std::int64_t, int, std::int64_t>{4500, 8, 4096}}) {
    for (const int transposes : {0, 1, 2, 3}) {
      CAPTURE(k);
      CAPTURE(transposes);
      const Product p{kM,
                      kN,
                      k,
                      transposes % 2 == 1,
                      transposes / 2 == 1,
                      whole(1, kM * k, limit),
                      whole(2, k * kN, limit)};
      const Values sum = p.sum(0, k);
      const Values first = to_bf16(p.sum(0, part));
      const Values pieces = to_bf16(map(first, p.sum(part, k), added));
      const Values running = p.sum(0, k, added_in_bf16);
      const Values bias = map(whole(3, kN, 100), [](double x) { return x + 0.5; });
      const Values biases = repeated_rows(bias, kM);
      const Values old = map(whole(4, kM * kN, 100), [](double x) { return x + 0.5; });
      const auto twice = [&](const Values& addend) {
        return to_bf16(map(to_bf16(sum), addend, added));
      };
      with_each_bench([&](Bench& bench) {
        const Tensor d = bench.out(bf16, kM, kN);
        Gemm op = p.op(bench, d);
        bench.run(op);
        check_rounded_once(Bench::read(d), {bf16, sum},
                           {{"by pieces of k", pieces}, {"running sum", running}});
        op.bias = bench.in(bf16, 1, kN, bias);
        bench.run(op);
        check_rounded_once(Bench::read(d), {bf16, map(sum, biases, added)},
                           {{"bias to the rounded sum", twice(biases)}});
        const Tensor onto = bench.in(bf16, kM, kN, old);
        bench.run(p.op(bench, onto, true));
        check_rounded_once(Bench::read(onto), {bf16, map(sum, old, added)},
                           {{"old D to the rounded sum", twice(old)}});

        op.d = bench.out(f32, kM, kN);
        bench.run(op);
        check_rounded_once(Bench::read(op.d), {f32, map(sum, biases, added)},
                           {{"bias to the rounded sum", map(to_bf16(sum), biases, added)}});
        const Tensor wide = bench.in(f32, kM, kN, old);
        bench.run(p.op(bench, wide, true));
        check_rounded_once(Bench::read(wide), {f32, map(sum, old, added)},
                           {{"old D to the rounded sum", map(to_bf16(sum), old, added)}});
      });
    }
  }
}

TEST_CASE("a GEMM does not round its products") {
  const Product p{33, 35, 64, false, true, normal(1, 33 * 64, bf16), normal(2, 35 * 64, bf16)};
  const auto absolute = [](double sum, double product) { return sum + std::abs(product); };
  const Values slack = map(p.sum(0, 64, absolute), [](double x) { return x * 0x1p-21; });
  const auto rounded = [](double sum, double product) { return sum + round_to_bf16(product); };
  const Values products = p.sum(0, 64, rounded);
  with_each_bench([&](Bench& bench) {
    const Tensor d = bench.out(bf16, 33, 35);
    bench.run(p.op(bench, d));
    check_rounded_once(Bench::read(d), {bf16, p.sum(0, 64), slack},
                       {{"rounded products", to_bf16(products)}});
    const Tensor wide = bench.out(f32, 33, 35);
    bench.run(p.op(bench, wide));
    check_rounded_once(Bench::read(wide), {f32, p.sum(0, 64), slack},
                       {{"rounded products", products}});
  });
}

namespace {

// sqrt(2 / pi) and tanh's derivative as papers write them.
double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_tanh_slope(double x) {
  const double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

}  // namespace

// Sums of multiples of 2^-12 below 2^8 are exact in f32 and not in bf16.
TEST_CASE("a GEMM's GELU is of the sum before it is rounded, its slope of what was stored") {
  constexpr std::int64_t kM = 37;
  constexpr std::int64_t kN = 29;
  constexpr std::int64_t kK = 8;
  constexpr std::int64_t kLd = 32;
  const auto fine = [](std::uint64_t seed, std::int64_t count) {
    return map(whole(seed, count, 127), [](double x) { return x / 64; });
  };
  const Product p{kM, kN, kK, false, true, fine(1, kM * kK), fine(2, kN * kK)};
  const Values bias = fine(3, kN);
  const Values sum = p.sum(0, kK);
  const Values pre = map(sum, repeated_rows(bias, kM), added);
  const Values stored_pre = to_bf16(pre);
  const Values act = map(pre, gelu_tanh);
  const Values slope = map(stored_pre, gelu_tanh_slope);
  const auto times = [](double x, double y) { return x * y; };
  const auto slack = [](const Values& x) {
    return map(x, [](double y) { return 4e-6 * std::abs(y) + 1e-7; });
  };
  const Values dpre = map(slope, sum, times);
  with_each_bench([&](Bench& bench) {
    const auto pre_in = [&](const Values& values) {
      Tensor t = bench.in(bf16, kM, kLd, Values(kM * kLd));
      const Tensor packed = bench.in(bf16, kM, kN, values);
      t.cols = kN;
      bench.run(Cast{packed, t});
      return t;
    };
    const Tensor d = bench.out(bf16, kM, kN);
    Gemm op = p.op(bench, d);
    op.bias = bench.in(bf16, 1, kN, bias);
    op.epilogue = GemmEpilogue::gelu;
    op.pre = pre_in(Values(kM * kN));
    bench.run(op);
    const Tensor kept = bench.out(bf16, kM, kN);
    bench.run(Cast{op.pre, kept});
    check_rounded_once(
        Bench::read(kept), {bf16, pre},
        {{"bias to the rounded sum", to_bf16(map(to_bf16(sum), repeated_rows(bias, kM), added))}});
    check_rounded_once(Bench::read(d), {bf16, act, slack(act)},
                       {{"of the rounded sum", to_bf16(map(stored_pre, gelu_tanh))}});

    Gemm back = p.op(bench, bench.out(bf16, kM, kN));
    back.epilogue = GemmEpilogue::dgelu;
    back.pre = pre_in(stored_pre);
    bench.run(back);
    check_rounded_once(
        Bench::read(back.d), {bf16, dpre, slack(sum)},
        {{"of the rounded sum", to_bf16(map(slope, to_bf16(sum), times))},
         {"rounded slope", to_bf16(map(to_bf16(slope), sum, times))},
         {"slope at the unrounded sum", to_bf16(map(map(pre, gelu_tanh_slope), sum, times))}});
  });
}

// 700 whole numbers: a sum in bf16 would stop growing at 256 times a term.
TEST_CASE("gradients of biases and embeddings are summed in f32") {
  constexpr std::int64_t kRows = 700;
  constexpr std::int64_t kCols = 37;
  const Values dy = whole(1, kRows * kCols, 100);
  const Values fine = normal(2, kRows * kCols, f32);
  const auto column_sums = [&](const Values& terms, auto add) {
    Values sums(kCols);
    for (std::size_t i = 0; i < terms.size(); ++i) sums[i % kCols] = add(sums[i % kCols], terms[i]);
    return sums;
  };
  const Exact whole_sums{f32, column_sums(dy, added)};
  const WrongWays running{{"running sum", column_sums(dy, added_in_bf16)}};
  const Exact fine_sums{f32, column_sums(fine, added), column_sums(fine, [](double sum, double x) {
                          return sum + std::abs(x) * 0x1p-20;
                        })};
  const WrongWays rounded_terms{{"rounded terms", column_sums(to_bf16(fine), added)}};
  // All rows are token 1 at position 0.
  Values rows(kRows);
  std::iota(rows.begin(), rows.end(), 0);
  with_each_bench([&](Bench& bench) {
    for (const bool low : {true, false}) {
      const Exact& exact = low ? whole_sums : fine_sums;
      const WrongWays& wrong = low ? running : rounded_terms;
      const Tensor t = bench.in(low ? bf16 : f32, kRows, kCols, low ? dy : fine);
      const Tensor partials = bench.out(f32, 1, bias_grad_partials(kRows, kCols));
      const Tensor dbias = bench.out(f32, 1, kCols);
      bench.run(BiasGrad{t, dbias, partials});
      check_rounded_once(Bench::read(dbias), exact, wrong);
      const Tensor dtable = bench.out(f32, 3, kCols);
      const Tensor dpositions = bench.out(f32, 1, kCols);
      bench.run(EmbedBackward{bench.in(i32, 1, kRows, rows),
                              bench.in(i32, 1, 4, {0, 0, kRows, kRows}), t, dtable, dpositions, 1});
      Tensor row = dtable;
      row.rows = 1;
      row.data = static_cast<float*>(dtable.data) + kCols;
      check_rounded_once(Bench::read(row), exact, wrong);
      check_rounded_once(Bench::read(dpositions), exact, wrong);
    }
  });
}

TEST_CASE("a cast rounds once, also from f64 and after an addition") {
  constexpr std::int64_t kN = 1003;
  // Numbers a little off the middle between two bf16 numbers: f32 cannot tell them from the middle.
  const Values near = map(whole(1, kN, 100), normal(2, kN, f32), [](double x, double sign) {
    return 2 * x + 257 + std::copysign(0x1p-40, sign);
  });
  const Values middle = to_f32(near);
  const Values x = normal(3, kN, f32);
  const Values low = normal(4, kN, bf16);
  with_each_bench([&](Bench& bench) {
    const auto cast = [&](DType from, const Values& src, DType to, const Values& onto = {}) {
      const bool accumulate = !onto.empty();
      const Tensor dst = accumulate ? bench.in(to, 1, kN, onto) : bench.out(to, 1, kN);
      bench.run(Cast{bench.in(from, 1, kN, src), dst, accumulate});
      return Bench::read(dst);
    };
    check_rounded_once(cast(f32, x, bf16), {bf16, x});
    check_rounded_once(cast(f32, middle, bf16), {bf16, middle});  // ties to even
    CHECK(cast(bf16, low, f32) == low);
    // Sums as f32 rounds them.
    const Values sum = to_f32(map(x, low, added));
    check_rounded_once(cast(f32, x, bf16, low), {bf16, sum},
                       {{"addend rounded first", to_bf16(map(to_bf16(x), low, added))}});
    check_rounded_once(cast(bf16, low, f32, x), {f32, sum});
    const Values old = normal(5, kN, bf16);
    check_rounded_once(cast(bf16, low, bf16, old), {bf16, to_f32(map(low, old, added))});
    if (!bench.tested().has_f64) return;
    check_rounded_once(cast(f64, near, bf16), {bf16, near}, {{"f32 between", to_bf16(middle)}});
    CHECK(cast(f32, x, f64) == x);
    CHECK(cast(f64, near, f32) == middle);
    check_rounded_once(cast(f64, x, bf16, low), {bf16, map(x, low, added)});
    CHECK(cast(f64, near, f32, low) == to_f32(map(near, low, added)));
  });
}

TEST_CASE("an embedding rounds the sum of token and position") {
  constexpr std::int64_t kCols = 67;
  for (const DType dtype : {bf16, f32}) {
    const Values table = normal(1, 5 * kCols, dtype);
    const Values positions = normal(2, 5 * kCols, dtype, 0.1);
    const Values tokens{0, 1, 2, 3, 4};
    with_each_bench([&](Bench& bench) {
      const Tensor y = bench.out(dtype, 5, kCols);
      Embed op{bench.in(i32, 1, 5, tokens), bench.in(dtype, 5, kCols, table),
               bench.in(dtype, 5, kCols, positions), y, 5};
      bench.run(op);
      check_rounded_once(Bench::read(y), {dtype, to_f32(map(table, positions, added))});
      op.positions = {};
      bench.run(op);
      CHECK(Bench::read(y) == table);
    });
  }
}

TEST_CASE("cross entropy rounds each gradient of a logit once, the target's from its difference") {
  constexpr std::int64_t kRows = 61;
  constexpr std::int64_t kVocab = 45;
  constexpr std::int64_t kCols = 48;
  Values logits = normal(1, kRows * kCols, bf16, 2);
  StepInputs in;
  in.inv_tokens = 1.0F / 61;
  const double factor = static_cast<double>(in.inv_tokens);
  Values targets(kRows);
  for (std::size_t r = 0; r < targets.size(); ++r) {
    targets[r] = static_cast<double>(r % kVocab);
    // The model is nearly certain: softmax - 1 loses most digits if it is computed from rounded
    // numbers.
    logits[r * kCols + r % kVocab] = 5 + static_cast<double>(r % 4);
  }
  // The target is checked apart from the other classes, because a row has only one.
  Exact other;
  Exact target;
  Exact loss{f32};
  Values p_other;
  Values p_target;
  const auto split = [&](const Values& all, Values& of_other, Values& of_target) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i % kCols >= kVocab) {
        CHECK(all[i] == 0);
      } else {
        const auto t = static_cast<std::size_t>(targets[i / kCols]);
        (i % kCols == t ? of_target : of_other).push_back(all[i]);
      }
    }
  };
  Values p(logits.size());
  for (std::size_t r = 0; r < kRows; ++r) {
    double sum = 0;
    for (std::size_t c = 0; c < kVocab; ++c) sum += std::exp(logits[r * kCols + c]);
    for (std::size_t c = 0; c < kVocab; ++c)
      p[r * kCols + c] = std::exp(logits[r * kCols + c]) / sum;
    loss.values.push_back(std::log(sum) - logits[r * kCols + static_cast<std::size_t>(targets[r])]);
    loss.slack.push_back(2e-6);
  }
  split(p, p_other, p_target);
  other.values = map(p_other, [&](double x) { return x * factor; });
  other.slack = map(other.values, [&](double x) { return x * 0x1p-19; });
  target.values = map(p_target, [&](double x) { return (x - 1) * factor; });
  target.slack.assign(p_target.size(), factor * 0x1p-21);
  const auto scaled = [&](double x) { return round_to_bf16(round_to_bf16(x) * factor); };
  const auto difference = [&](double x) { return round_to_bf16((round_to_bf16(x) - 1) * factor); };
  with_each_bench([&](Bench& bench) {
    const Tensor t = bench.in(bf16, kRows, kCols, logits);
    const Tensor row_loss = bench.out(f32, 1, kRows);
    bench.run(
        CrossEntropy{t, bench.in(i32, 1, kRows, targets), row_loss, kVocab, bench.inputs(in)});
    Values at_other;
    Values at_target;
    split(Bench::read(t), at_other, at_target);
    check_rounded_once(at_other, other, {{"rounded softmax", map(p_other, scaled)}});
    check_rounded_once(at_target, target, {{"rounded softmax", map(p_target, difference)}});
    check_rounded_once(Bench::read(row_loss), loss);
  });
}

// An update far below bf16's spacing must reach the master, and the parameter must be the rounded
// master.
TEST_CASE("AdamW keeps the master in f32 and rounds it once to the parameter") {
  constexpr std::int64_t kN = 1003;
  const Values grad = normal(1, kN, f32);
  const Values before = normal(2, kN, f32);
  const Values m = normal(3, kN, f32, 0.1);
  const Values v = map(normal(4, kN, f32), [](double x) { return to_f32({x * x + 0.1})[0]; });
  StepInputs in;
  in.lr = 1e-5F;
  in.weight_decay = 0.1F;
  in.bias1 = 0.5F;
  in.bias2 = 0.25F;
  const auto stepped = [&](const Values& from) {
    Values after;
    const auto lr = static_cast<double>(in.lr);
    for (std::size_t i = 0; i < from.size(); ++i) {
      const double m1 = 0.5 * m[i] + 0.5 * grad[i];
      const double v1 = 0.75 * v[i] + 0.25 * grad[i] * grad[i];
      const double decay = static_cast<double>(in.weight_decay) * from[i];
      after.push_back(from[i] - lr * (m1 / 0.5 / (std::sqrt(v1 / 0.25) + 1e-8) + decay));
    }
    return after;
  };
  const Exact exact{f32, stepped(before),
                    map(before, [](double x) { return std::abs(x) * 0x1p-22 + 1e-10; })};
  with_each_bench([&](Bench& bench) {
    for (const DType dtype : {bf16, f32}) {
      AdamW op{bench.in(f32, 1, kN, grad), bench.in(f32, 1, kN, before), bench.in(f32, 1, kN, m),
               bench.in(f32, 1, kN, v), bench.out(dtype, 1, kN)};
      op.beta1 = 0.5F;
      op.beta2 = 0.75F;
      op.decay_end = kN;
      op.in = bench.inputs(in);
      op.state = bench.state();
      bench.run(op);
      const Values master = Bench::read(op.master);
      check_rounded_once(master, exact,
                         {{"no update", before}, {"from the parameter", stepped(to_bf16(before))}});
      check_rounded_once(Bench::read(op.param), {dtype, master});
    }
  });
}
