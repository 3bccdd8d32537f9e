// SPDX-License-Identifier: Apache-2.0
// Norms, and the sums over rows of bias gradients. Gaps of 8 elements and none leave rows at
// multiples of 16 bytes, which GPUs read by packs of 8.
#include "trainer/selftest/cases.h"

namespace tessera::trainer::test {
namespace {

using model::Norm;

enum class Residual { none, add, in_place };

struct NormCase {
  Norm kind;
  std::int64_t rows, cols;
  Residual residual;
  bool bias;
  bool wide = false;  // residual stream and parameters f32 beside bf16 branches
  std::int64_t gap = 1;
};

Case norm(NormCase n) {
  const bool layernorm = n.kind == Norm::layernorm;
  const std::int64_t rows = n.rows;
  const std::int64_t cols = n.cols;
  Case c;
  c.name = std::string(layernorm ? "layernorm " : "rmsnorm ") + std::to_string(rows) + "x" +
           std::to_string(cols) + (n.residual == Residual::none ? "" : " residual") +
           (n.residual == Residual::in_place ? " in place" : "") + (n.bias ? " bias" : "") +
           (n.wide ? " wide" : "") + " gap " + std::to_string(n.gap);
  c.build = [=](Arena& a) {
    const auto in = [&](const char* name, std::int64_t r, double scale, double shift,
                        std::int64_t gap) {
      return n.wide ? a.wide_in(name, r, cols, scale, shift, gap)
                    : a.in(name, r, cols, scale, shift, gap);
    };
    const auto out = [&](const char* name) {
      return n.wide ? a.wide_out(name, rows, cols, n.gap / 2 * 2)
                    : a.out(name, rows, cols, n.gap / 2 * 2);
    };
    const Tensor x = in("x", rows, 2, 0.5, n.gap);
    const Tensor gain = in("gain", 1, 0.3, 1, 0);
    const Tensor dy = a.in("dy", rows, cols, 1, 0.25);
    const Tensor y = a.out("y", rows, cols, 2 * n.gap);
    const Tensor mean = layernorm ? a.statistics("mean", 1, rows) : Tensor{};
    const Tensor rstd = a.statistics("rstd", 1, rows);
    NormForward forward{n.kind, 1e-5F, x, {}, {}, y, gain, {}, mean, rstd};
    if (n.bias) forward.bias = in("bias", 1, 1, 0, 0);
    Tensor sum = x;
    Tensor dsum_in;
    Tensor dsum;
    if (n.residual == Residual::none) {
      dsum = out("dsum");
    } else {
      forward.add = a.in("add", rows, cols);
      if (n.residual == Residual::in_place) {
        a.compare("x");
      } else {
        sum = out("sum");
      }
      forward.sum = sum;
      dsum_in = in("dsum_in", rows, 1, 0, 0);
      dsum = n.residual == Residual::in_place ? dsum_in : out("dsum");
      if (n.residual == Residual::in_place) a.compare("dsum_in");
    }
    return std::vector<Op>{forward, NormBackward{n.kind, dy, dsum_in, sum, gain, mean, rstd, dsum,
                                                 a.statistics("dgain", 1, cols),
                                                 n.bias ? a.statistics("dbias", 1, cols) : Tensor{},
                                                 a.scratch(norm_partials(rows, cols)), false}};
  };
  // Finite differences of the larger ones would check the same code of the CPU for longer.
  constexpr std::int64_t kMostElements = 10'000;
  c.slow = rows > 1000;
  if (rows * cols > kMostElements) return c;
  // The residual branch hands dsum_in down as well.
  c.objective = {{"y", "dy"}};
  if (n.residual == Residual::add) c.objective.push_back({"sum", "dsum_in"});
  if (n.residual != Residual::in_place) c.gradients = {{"x", "dsum"}, {"gain", "dgain"}};
  if (n.residual == Residual::add) c.gradients.push_back({"add", "dsum"});
  if (n.bias && n.residual != Residual::in_place) c.gradients.push_back({"bias", "dbias"});
  return c;
}

// All of `whole` but its first `skipped` columns: begins between packs.
Tensor without_columns(Tensor whole, std::int64_t skipped) {
  whole.data = static_cast<std::byte*>(whole.data) + skipped * bytes_of(whole.dtype);
  whole.cols -= skipped;
  return whole;
}

Case norm_accumulate(Norm kind, std::int64_t cols, std::int64_t skipped) {
  Case c;
  c.name = std::string(kind == Norm::layernorm ? "layernorm" : "rmsnorm") + " 70x" +
           std::to_string(cols) + " gradients accumulate" + (skipped > 0 ? " between packs" : "");
  c.build = [=](Arena& a) {
    const Tensor x = without_columns(a.in("x", 70, cols + skipped, 1, 0, 8 - skipped), skipped);
    const Tensor gain = a.in("gain", 1, cols, 0.3, 1);
    const Tensor mean = kind == Norm::layernorm ? a.statistics("mean", 1, 70) : Tensor{};
    const Tensor rstd = a.statistics("rstd", 1, 70);
    return std::vector<Op>{
        NormForward{kind, 1e-5F, x, {}, {}, a.out("y", 70, cols), gain, {}, mean, rstd},
        NormBackward{kind,
                     a.in("dy", 70, cols),
                     {},
                     x,
                     gain,
                     mean,
                     rstd,
                     a.out("dsum", 70, cols),
                     a.accumulator("dgain", 1, cols, 100),
                     a.accumulator("dbias", 1, cols, 100),
                     a.scratch(norm_partials(70, cols)),
                     true}};
  };
  return c;
}

Case bias_grad(std::int64_t rows, std::int64_t cols, std::int64_t gap, bool accumulate,
               std::int64_t skipped = 0) {
  Case c;
  c.name = "bias gradient " + std::to_string(rows) + "x" + std::to_string(cols) + " gap " +
           std::to_string(gap) + (accumulate ? " accumulate" : "") +
           (skipped > 0 ? " between packs" : "");
  c.slow = rows > 1000;
  c.build = [=](Arena& a) {
    const Tensor dy =
        without_columns(a.in("dy", rows, cols + skipped, 1, 0.5, gap - skipped), skipped);
    const Tensor db = accumulate ? a.accumulator("db", 1, cols, 100) : a.statistics("db", 1, cols);
    return std::vector<Op>{BiasGrad{dy, db, a.scratch(bias_grad_partials(rows, cols)), accumulate}};
  };
  return c;
}

}  // namespace

std::vector<Case> norm_cases() {
  std::vector<Case> all;
  for (const Norm kind : {Norm::layernorm, Norm::rmsnorm}) {
    const bool layernorm = kind == Norm::layernorm;
    for (const Residual residual : {Residual::none, Residual::add, Residual::in_place}) {
      all.push_back(norm({kind, 37, 67, residual, true}));
      all.push_back(norm({kind, 131, 128, residual, false}));
      all.push_back(norm({kind, 37, 67, residual, layernorm, true}));
      // Packs: several rows at once, the last block and the last pack of a warp not full.
      all.push_back(norm({kind, 45, 328, residual, layernorm, false, 8}));
      all.push_back(norm({kind, 45, 72, residual, layernorm, true, 8}));
    }
    all.push_back(norm({kind, 1, 5, Residual::add, true}));
    all.push_back(norm_accumulate(kind, 33, 0));
    all.push_back(norm_accumulate(kind, 64, 0));
    all.push_back(norm_accumulate(kind, 64, 1));
  }
  // A thread with several packs, held or not; rows of several turns by elements.
  for (const bool wide : {false, true}) {
    all.push_back(norm({Norm::layernorm, 3, 2088, Residual::add, true, wide, 8}));
    all.push_back(norm({Norm::layernorm, 21, 2088, Residual::in_place, true, wide, 8}));
    all.push_back(norm({Norm::layernorm, 3, 4160, Residual::in_place, true, wide, 8}));
    all.push_back(norm({Norm::layernorm, 3, 8392, Residual::add, true, wide, 8}));
    all.push_back(norm({Norm::layernorm, 3, 16496, Residual::in_place, true, wide, 8}));
    all.push_back(norm({Norm::rmsnorm, 3, 4203, Residual::add, true, wide}));
  }
  all.push_back(norm({Norm::rmsnorm, 3, 8392, Residual::none, false, false, 8}));
  all.push_back(norm({Norm::rmsnorm, 3, 16496, Residual::none, false, false, 8}));
  // As many parts as there ever are, of 32 and 33 rows.
  all.push_back(norm({Norm::layernorm, 8300, 8, Residual::none, true, false, 8}));
  for (const bool accumulate : {false, true}) {
    all.push_back(bias_grad(77, 67, 1, accumulate));
    all.push_back(bias_grad(77, 328, 8, accumulate));
    all.push_back(bias_grad(1915, 3, 0, accumulate));  // 60 parts
  }
  all.push_back(bias_grad(77, 64, 8, false, 1));
  all.push_back(bias_grad(8300, 1, 0, true));
  all.push_back(bias_grad(16900, 8, 0, false));  // over 64 rows a part
  return all;
}

std::vector<Case> decoder_norm_cases(const DecoderShape& s) {
  std::vector<Case> all;
  for (const Norm kind : {Norm::layernorm, Norm::rmsnorm}) {
    Case& c = all.emplace_back(
        norm({kind, s.rows(), s.d_model, Residual::add, kind == Norm::layernorm, false, 0}));
    c.time(0, std::string(to_text(kind)));
    c.time(1, std::string(to_text(kind)));
  }
  return all;
}

}  // namespace tessera::trainer::test
