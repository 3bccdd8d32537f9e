// SPDX-License-Identifier: Apache-2.0
// The published MPT tables are the oracle: 216 rows, each recomputed from its printed tokens/s.
#include "lib/flops/utilization.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "lib/model/model_file.h"
#include "tests/csv.h"

using namespace tessera;
using namespace tessera::flops;

namespace {

double number(const test::CsvRow& row, const std::string& column) {
  return std::stod(row.at(column));
}

double peak_of(const test::CsvRow& row) {
  if (row.at("precision") == "amp_fp8") return 1979e12;
  return row.at("gpu").starts_with("h100") ? 989.5e12 : 312e12;
}

std::string name_of(const test::CsvRow& row) {
  return row.at("gpu") + " " + row.at("model") + "/" + row.at("seq_len") + " x" + row.at("gpus");
}

// Remembers the largest deviation and where it was.
struct Worst {
  double value = 0;
  std::string row = "none";
  void see(double deviation, const std::string& at) {
    if (std::abs(deviation) > std::abs(value)) {
      value = deviation;
      row = at;
    }
  }
};

}  // namespace

TEST_CASE("every published row: MFU, HFU and Model TFLOP within what truncation allows") {
  const auto rows = test::read_csv("yamls/reference/mpt-published.csv");
  REQUIRE(rows.size() == 216);
  Worst worst_mfu;
  Worst worst_hfu;
  std::vector<std::string> tflop_outside;
  for (const auto& row : rows) {
    CAPTURE(name_of(row));
    const auto shape = model::find_model(row.at("model"), "").shape;
    const std::int64_t seq_len = std::stoll(row.at("seq_len"));
    const ForwardFlops forward = forward_flops(shape, seq_len);
    const auto at = [&](double tokens_per_s) {
      return Throughput{
          .tokens_per_s = tokens_per_s, .seq_len = seq_len, .devices = std::stoll(row.at("gpus"))};
    };
    const double printed = number(row, "tokens_per_s");  // truncated: in [x, x + 1)
    const double half_digit = 0.005 + 1e-9;
    const double peak = peak_of(row);
    const auto checkpointing =
        row.at("act_ckpt") == "True" ? Checkpointing::full : Checkpointing::none;

    const double low_mfu = 100 * mfu(forward, at(printed), peak);
    const double high_mfu = 100 * mfu(forward, at(printed + 1), peak);
    CHECK(low_mfu <= number(row, "mfu") + half_digit);
    CHECK(high_mfu >= number(row, "mfu") - half_digit);
    worst_mfu.see(low_mfu - number(row, "mfu"), name_of(row));

    const double low_hfu = 100 * hfu_mosaic(forward, at(printed), peak, checkpointing).value();
    const double high_hfu = 100 * hfu_mosaic(forward, at(printed + 1), peak, checkpointing).value();
    CHECK(low_hfu <= number(row, "hfu") + half_digit);
    CHECK(high_hfu >= number(row, "hfu") - half_digit);
    worst_hfu.see(low_hfu - number(row, "hfu"), name_of(row));

    const double low_tflop = std::trunc(model_flops_per_s(forward, at(printed)) / 1e12);
    const double high_tflop = std::trunc(model_flops_per_s(forward, at(printed + 1)) / 1e12);
    if (number(row, "model_tflop") < low_tflop || number(row, "model_tflop") > high_tflop)
      tflop_outside.push_back(name_of(row));
  }
  MESSAGE("worst MFU deviation " << worst_mfu.value << " points at " << worst_mfu.row);
  MESSAGE("worst HFU deviation " << worst_hfu.value << " points at " << worst_hfu.row);
  // As published, these two are one above what their own tokens/s gives.
  std::ranges::sort(tflop_outside);
  CHECK(tflop_outside == std::vector<std::string>{"a100_40gb 3b/8192 x8", "a100_40gb 7b/8192 x8"});
}

TEST_CASE("checkpointing changes HFU by exactly one more forward pass, and never MFU") {
  const ForwardFlops forward{.weights = 3e12, .attention = 1e12};
  const Throughput one{.tokens_per_s = 10, .seq_len = 1, .devices = 1};
  const double model = mfu(forward, one, 1e15);
  CHECK(hfu_mosaic(forward, one, 1e15, Checkpointing::none).value() == model);
  CHECK(hfu_mosaic(forward, one, 1e15, Checkpointing::full).value() ==
        doctest::Approx(4.0 / 3 * model));
  CHECK_FALSE(hfu_mosaic(forward, one, 1e15, Checkpointing::selective).has_value());
}

TEST_CASE(
    "what full checkpointing computes again is the blocks' forward but for their last product") {
  const auto shape = model::find_model("7b", "").shape;
  const double d = 4096;
  const double all = recomputed_flops_per_token(shape, 2048, 32);
  CHECK(all == doctest::Approx(32 * (2 * (3 * d * d + d * d + 4 * d * d) + 4 * d * 2048)));
  CHECK(recomputed_flops_per_token(shape, 2048, 0) == 0);
  CHECK(recomputed_flops_per_token(shape, 2048, 8) == doctest::Approx(all / 4));
  // Less than mosaic's whole forward pass, which has the head and the last products too.
  const ForwardFlops forward = forward_flops(shape, 2048);
  CHECK(all < forward.total() / 2048);
  CHECK(all > 0.6 * forward.total() / 2048);
}

TEST_CASE("causal halves attention and nothing else") {
  const auto shape = model::find_model("125m", "").shape;
  const ForwardFlops full = forward_flops(shape, 2048);
  const ForwardFlops causal = forward_flops(shape, 2048, Convention::causal);
  CHECK(causal.weights == full.weights);
  CHECK(causal.attention == full.attention / 2);
  CHECK(model_flops_per_token(shape, 2048) == doctest::Approx(3 * full.total() / 2048));
}

TEST_CASE("no gradient is counted of weights that are not trained") {
  const auto shape = model::find_model("125m", "").shape;
  const double all = model_flops_per_token(shape, 2048);
  CHECK(all - model_flops_per_token(shape, 2048, Convention::mosaic, 1000) == 2000);
  // With all frozen, forward and the activations' gradient are left: two passes over the weights.
  const ForwardFlops forward = forward_flops(shape, 2048);
  const std::int64_t count = model::parameter_count(shape, 2048);
  CHECK(model_flops_per_token(shape, 2048, Convention::mosaic, count) ==
        doctest::Approx((2 * forward.weights + 3 * forward.attention) / 2048));
}

TEST_CASE("the terms add up to what MFU and HFU count") {
  const auto shape = model::find_model("7b", "").shape;
  for (const auto convention : {Convention::mosaic, Convention::causal}) {
    double model = 0;
    double executed = 0;
    for (const Term& term : terms_per_token(shape, 2048, convention, Checkpointing::full)) {
      executed += term.flops_per_token;
      if (!term.recompute) model += term.flops_per_token;
      CHECK_FALSE(term.formula.empty());
    }
    CHECK(model == doctest::Approx(model_flops_per_token(shape, 2048, convention)));
    CHECK(executed == doctest::Approx(4.0 / 3 * model));
  }
  CHECK(terms_per_token(shape, 2048, Convention::mosaic, Checkpointing::none).size() == 4);
  CHECK(terms_per_token(shape, 2048, Convention::mosaic, Checkpointing::none)[0].formula ==
        "2 x 6658859008 parameters");
}
