// SPDX-License-Identifier: Apache-2.0
// Matrix products, and those with the GELU in them.
#include "trainer/selftest/cases.h"

namespace tessera::trainer::test {
namespace {

// y = x W^T + b, and all its gradients: the three transpositions that a linear layer needs.
// accumulate: adds to the matrix' gradient, accumulate_bias to the bias'. gap: the least between
// rows, others have a multiple.
Case linear(std::int64_t rows, std::int64_t in, std::int64_t out, bool bias, bool accumulate,
            bool accumulate_bias, std::int64_t gap = 1) {
  Case c;
  c.name = "linear " + std::to_string(rows) + "x" + std::to_string(in) + "x" + std::to_string(out) +
           (bias ? " bias" : "") + (accumulate ? " accumulate" : "");
  c.build = [=](Arena& a) {
    const Tensor x = a.in("x", rows, in, 1, 0, 3 * gap);
    const Tensor w = a.in("w", out, in, 0.3);
    const Tensor dy = a.in("dy", rows, out, 1, 0, gap);
    const Tensor y = a.out("y", rows, out, 2 * gap);
    const Tensor dx = a.out("dx", rows, in);
    Gemm forward{x, w, y};
    if (bias) forward.bias = a.in("b", 1, out);
    const auto gradient = [&](const char* name, std::int64_t r, std::int64_t cols, bool adds) {
      return adds ? a.accumulator(name, r, cols) : a.statistics(name, r, cols);
    };
    return std::vector<Op>{
        forward, Gemm{dy, w, dx, false, false},
        Gemm{dy, x, gradient("dw", out, in, accumulate), true, false, accumulate},
        BiasGrad{dy, gradient("db", 1, out, accumulate_bias),
                 a.scratch(bias_grad_partials(rows, out)), accumulate_bias}};
  };
  c.objective = {{"y", "dy"}};
  c.gradients = {{"x", "dx"}};
  if (!accumulate) c.gradients.push_back({"w", "dw"});
  if (!accumulate_bias && bias) c.gradients.push_back({"b", "db"});
  return c;
}

// Both transposed at once, and D += AB in D's own dtype.
Case gemm_rest() {
  Case c;
  c.name = "gemm transposed twice and accumulating";
  c.build = [](Arena& a) {
    const Tensor x = a.in("x", 37, 19);
    const Tensor w = a.in("w", 23, 37);
    const Tensor d = a.in("d", 19, 23, 5);
    a.compare("d");
    return std::vector<Op>{Gemm{x, w, d, true, true, true}};
  };
  return c;
}

// Wider than a block of the bf16 path in each direction.
Case gemm_blocks() {
  Case c;
  c.name = "gemm over several blocks";
  c.build = [](Arena& a) {
    const Tensor thin = a.in("thin", 1030, 5);
    const Tensor wide = a.in("wide", 2053, 5);
    const Tensor deep = a.in("deep", 3, 4100);
    const Tensor deep2 = a.in("deep2", 7, 4100);
    return std::vector<Op>{Gemm{thin, wide, a.out("outer", 1030, 2053)},
                           Gemm{deep, deep2, a.out("inner", 3, 7)},
                           Gemm{deep, deep2, a.statistics("inner_f32", 3, 7)}};
  };
  return c;
}

// Elements between rows of `cols` that let each begin at a multiple of eight, of packs of eight.
std::int64_t gap_to_packs(std::int64_t cols, std::int64_t packs = 1) {
  return packs * kPreElements - 1 - (cols + packs * kPreElements - 1) % (packs * kPreElements);
}

// An MLP whose products do its GELU: act = gelu_tanh(pre), pre = x W^T + b; out = act V^T; and
// backward, where the gradient of pre comes straight from that of out.
Case fused_gelu(std::int64_t rows, std::int64_t in, std::int64_t hidden, std::int64_t out,
                bool bias, std::int64_t gap = 1) {
  Case c;
  c.name = "gemm gelu " + std::to_string(rows) + "x" + std::to_string(in) + "x" +
           std::to_string(hidden) + "x" + std::to_string(out) + (bias ? " bias" : "");
  c.build = [=](Arena& a) {
    const Tensor x = a.in("x", rows, in, 1, 0, 3 * gap);
    const Tensor w = a.in("w", hidden, in, 0.3);
    const Tensor v = a.in("v", out, hidden, 0.3, 0, 2 * gap);
    const Tensor pre = a.out("pre", rows, hidden, gap_to_packs(hidden));
    const Tensor act = a.out("act", rows, hidden, 5 * gap);
    const Tensor y = a.out("y", rows, out);
    const Tensor dy = a.in("dy", rows, out, 1, 0, gap);
    const Tensor dpre = a.out("dpre", rows, hidden, 2 * gap);
    Gemm forward{.a = x, .b = w, .d = act, .epilogue = GemmEpilogue::gelu, .pre = pre};
    if (bias) forward.bias = a.in("b", 1, hidden);
    return std::vector<Op>{
        forward,
        Gemm{act, v, y},
        Gemm{.a = dy,
             .b = v,
             .d = dpre,
             .transpose_b = false,
             .epilogue = GemmEpilogue::dgelu,
             .pre = pre},
        Gemm{dpre, w, a.out("dx", rows, in), false, false},
        Gemm{dpre, x, a.statistics("dw", hidden, in), true, false},
        Gemm{dy, act, a.statistics("dv", out, hidden), true, false},
        BiasGrad{dpre, a.statistics("db", 1, hidden), a.scratch(bias_grad_partials(rows, hidden))}};
  };
  c.objective = {{"y", "dy"}};
  c.gradients = {{"x", "dx"}, {"w", "dw"}, {"v", "dv"}};
  if (bias) c.gradients.push_back({"b", "db"});
  return c;
}

// The slope of GELU where its input is large as often as small, in every transposition, beside the
// activation and the product alone, whose gradient it is.
Case gelu_slope(std::int64_t rows, std::int64_t hidden, std::int64_t out, bool transpose_a,
                bool transpose_b) {
  Case c;
  c.name = "gemm dgelu " + std::to_string(rows) + "x" + std::to_string(hidden) + "x" +
           std::to_string(out) + (transpose_a ? " t" : " n") + (transpose_b ? "t" : "n");
  c.build = [=](Arena& a) {
    const Tensor pre = a.in("pre", rows, hidden, 3, 0, gap_to_packs(hidden, 2));
    const Tensor left = transpose_a ? a.in("left", out, rows) : a.in("left", rows, out);
    const Tensor right = transpose_b ? a.in("right", hidden, out) : a.in("right", out, hidden);
    return std::vector<Op>{
        ActForward{model::Activation::gelu_tanh, pre, a.out("act", rows, hidden)},
        Gemm{left, right, a.out("product", rows, hidden), transpose_a, transpose_b},
        Gemm{.a = left,
             .b = right,
             .d = a.out("dpre", rows, hidden, 3),
             .transpose_a = transpose_a,
             .transpose_b = transpose_b,
             .epilogue = GemmEpilogue::dgelu,
             .pre = pre}};
  };
  c.objective = {{"act", "product"}};
  c.gradients = {{"pre", "dpre"}};
  return c;
}

// Wider than a block of the bf16 path in each direction.
Case epilogues_over_blocks() {
  Case c;
  c.name = "gemm epilogues over several blocks";
  c.build = [](Arena& a) {
    const Tensor thin = a.in("thin", 1030, 5, 0.5);
    const Tensor wide = a.in("wide", 2053, 5);
    const Tensor deep = a.in("deep", 3, 4100, 0.02);
    const Tensor deep2 = a.in("deep2", 7, 4100);
    const Tensor bias = a.in("bias", 1, 2053);
    const auto both = [&](const Tensor& x, const Tensor& w, const Tensor& b,
                          const std::string& name) {
      const Tensor pre = a.out(name + " pre", x.rows, w.rows, gap_to_packs(w.rows));
      return std::vector<Op>{Gemm{.a = x,
                                  .b = w,
                                  .d = a.out(name + " gelu", x.rows, w.rows),
                                  .bias = b,
                                  .epilogue = GemmEpilogue::gelu,
                                  .pre = pre},
                             Gemm{.a = x,
                                  .b = w,
                                  .d = a.out(name + " dgelu", x.rows, w.rows),
                                  .epilogue = GemmEpilogue::dgelu,
                                  .pre = pre}};
    };
    std::vector<Op> ops = both(thin, wide, bias, "outer");
    for (Op& op : both(deep, deep2, {}, "inner")) ops.push_back(op);
    return ops;
  };
  return c;
}

}  // namespace

std::vector<Case> gemm_cases() {
  return {linear(65, 33, 17, true, false, false),
          linear(7, 130, 96, false, false, false),
          linear(100, 20, 31, false, true, true),
          linear(1, 1, 1, true, false, false),
          gemm_rest(),
          gemm_blocks(),
          fused_gelu(65, 33, 23, 17, true),
          fused_gelu(40, 16, 72, 24, false),
          fused_gelu(1, 5, 8, 3, true),
          gelu_slope(19, 37, 21, false, false),
          gelu_slope(19, 37, 21, true, true),
          gelu_slope(33, 64, 40, false, true),
          epilogues_over_blocks()};
}

// The MLP's first matrix, forward and backward; and with the GELU, the second one backward.
std::vector<Case> decoder_gemm_cases(const DecoderShape& s) {
  Case up = linear(s.rows(), s.d_model, s.ffn, true, true, false, 0);
  up.time(0, "forward");
  up.time(1, "dX");
  up.time(2, "dW");
  up.time(3);
  if (!s.fused_gelu) return {up};
  Case gelu = fused_gelu(s.rows(), s.d_model, s.ffn, s.d_model, true, 0);
  gelu.time(0, "forward gelu");
  gelu.time(2, "dX dgelu");
  return {up, gelu};
}

}  // namespace tessera::trainer::test
