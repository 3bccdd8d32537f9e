// SPDX-License-Identifier: Apache-2.0
// Which published row stands for a point: distances by hand, choices by hand, and each row guessed
// from all the others.
#include "lib/sweep/published_rows.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "lib/base/error.h"
#include "tests/lib/sweep/published_points.h"

using namespace tessera;
using namespace tessera::sweep;
using test::gpu_point;
using test::mpt_rows;
using test::point_of;

namespace {

std::string name_of(const PublishedRow* row) {
  if (row == nullptr) return "none";
  return row->model + "/" + std::to_string(row->seq_len) + " x" + std::to_string(row->gpus) +
         (row->full_checkpointing ? " full" : "");
}

std::string nearest_to(const Point& point) {
  return name_of(nearest_row(point, published_rows()));
}

// As published for 125m at 2048 tokens on 8 devices; 125311488 parameters.
PublishedRow row_of_125m() {
  return {.model = "125m",
          .n_params = 125311488,
          .seq_len = 2048,
          .gpus = 8,
          .gpu = "a100_80gb",
          .precision = Precision::amp_bf16,
          .full_checkpointing = false,
          .global_batch = 512,
          .mfu = 0.5};
}

}  // namespace

TEST_CASE("all 216 published rows are read, cell by cell as the file has them") {
  const auto& rows = published_rows();
  REQUIRE(rows.size() == 216);
  REQUIRE(mpt_rows().size() == 216);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& cells = mpt_rows()[i];
    CHECK(rows[i].model == cells.at("model"));
    CHECK(rows[i].gpu == cells.at("gpu"));
    CHECK(std::to_string(rows[i].n_params) == cells.at("n_params"));
    CHECK(std::to_string(rows[i].seq_len) == cells.at("seq_len"));
    CHECK(std::to_string(rows[i].gpus) == cells.at("gpus"));
    CHECK(std::to_string(rows[i].global_batch) == cells.at("global_batch_size"));
    CHECK(rows[i].full_checkpointing == (cells.at("act_ckpt") == "True"));
    CHECK(100 * rows[i].mfu == doctest::Approx(std::stod(cells.at("mfu"))));
  }
  CHECK(&published_rows() == &rows);
}

TEST_CASE("a row that says nonsense is told with its line and column") {
  const std::string head =
      "model,seq_len,gpus,gpu,mfu,global_batch_size,precision,act_ckpt,n_params\n";
  const auto fault = [&](const std::string& row) -> std::string {
    try {
      parse_published_rows(head + row, "t.csv");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::input);
      return error.what();
    }
    return "none";
  };
  CHECK(fault("7b,2048,8,g,41.5,96,bf16,True,7\n") == "none");
  CHECK(fault("7b,2048,8,g,0,96,bf16,True,7\n") ==
        "t.csv:2: mfu '0'; must be above 0 and at most 100");
  CHECK(fault("7b,2048,8,g,41.5,96,bf16,yes,7\n") ==
        "t.csv:2: act_ckpt 'yes'; must be True or False");
  CHECK(fault("7b,-1,8,g,41.5,96,bf16,True,7\n") ==
        "t.csv:2: seq_len '-1'; must be a positive integer");
  CHECK(fault("7b,2048,8,g,41.5,96,amp_bf61,True,7\n") ==
        "t.csv:2: precision 'amp_bf61'; did you mean amp_bf16?");
  CHECK_THROWS_AS(parse_published_rows("model,seq_len\n7b,1\n", "t.csv"), Error);
}

TEST_CASE("distances are as documented") {
  const Point point = gpu_point("125m", 2048, 512, 8, "a100_80gb");
  const auto from = [&](auto change) {
    PublishedRow row = row_of_125m();
    change(row);
    return distance(point, row);
  };
  CHECK(from([](PublishedRow&) {}) == doctest::Approx(0));
  CHECK(from([](PublishedRow& row) { row.n_params *= 4; }) == doctest::Approx(2));
  CHECK(from([](PublishedRow& row) { row.n_params /= 2; }) == doctest::Approx(1).epsilon(1e-6));
  CHECK(from([](PublishedRow& row) { row.full_checkpointing = true; }) == doctest::Approx(1));
  CHECK(from([](PublishedRow& row) { row.global_batch = 2048; }) == doctest::Approx(0.1));
  // Twice the sequence at half the batch, four times the devices at four times the batch: as many
  // tokens a device.
  CHECK(from([](PublishedRow& row) { row.seq_len = 4096, row.global_batch = 256; }) ==
        doctest::Approx(0.5));
  CHECK(from([](PublishedRow& row) { row.gpus = 32, row.global_batch = 2048; }) ==
        doctest::Approx(0.5));
  CHECK(from([](PublishedRow& row) { row.gpus = 1; }) == doctest::Approx(0.75 + 0.15));
  CHECK_FALSE(from([](PublishedRow& row) { row.gpu = "a100_40gb"; }).has_value());
  CHECK_FALSE(from([](PublishedRow& row) { row.precision = Precision::fp32; }).has_value());

  Point checkpointed = point;
  checkpointed.activation_checkpointing = Checkpointing::full;
  CHECK(distance(checkpointed, row_of_125m()) == doctest::Approx(1));
  checkpointed.activation_checkpointing = Checkpointing::selective;
  CHECK(distance(checkpointed, row_of_125m()) == doctest::Approx(0));
}

TEST_CASE(
    "the nearest row is taken, of equally near ones the first, and none beyond the farthest") {
  const Point point = gpu_point("125m", 2048, 512, 8, "a100_80gb");
  std::vector<PublishedRow> rows(3, row_of_125m());
  rows[0].n_params *= 2;
  rows[1].full_checkpointing = true, rows[1].model = "other";
  rows[2].seq_len = 4096;
  CHECK(nearest_row(point, rows) == &rows[2]);
  rows[2].seq_len = 65536;  // 2.5 and the tokens: behind both
  CHECK(nearest_row(point, rows) != &rows[2]);
  rows[0] = rows[1];
  CHECK(nearest_row(point, rows) == &rows[0]);
  CHECK(nearest_row(point, {}) == nullptr);

  rows.assign(1, row_of_125m());
  rows[0].n_params *= 7;
  CHECK(nearest_row(point, rows) == &rows[0]);
  rows[0].n_params = 9 * row_of_125m().n_params;
  CHECK(nearest_row(point, rows) == nullptr);
}

TEST_CASE("points between the published ones have the neighbour that one would name") {
  // 24 devices are 0.58 doublings from 16 and 0.42 from 32.
  CHECK(nearest_to(gpu_point("1b", 2048, 480, 24, "h100_80gb")) == "1b/2048 x32");
  // 1.56e9 parameters at 1024 tokens: 1b has 1.31e9, 3b 2.65e9.
  CHECK(nearest_to(gpu_point("gpt2-1558m", 1024, 576, 8, "h100_80gb")) == "1b/1024 x8");
  // One device is three doublings from eight, all rows alike.
  CHECK(nearest_to(gpu_point("125m", 2048, 64, 1, "a100_80gb")) == "125m/2048 x8");
  // 8.0e9 parameters: 7b is 0.3 doublings away, and both are checkpointed.
  Point llama = gpu_point("llama-3-8b", 8192, 128, 8, "h100_80gb");
  llama.activation_checkpointing = Checkpointing::full;
  CHECK(nearest_to(llama) == "7b/8192 x8 full");
  // fp8 was published for 1b and 3b at most: 7b is 1.3 doublings from 3b.
  Point fp8 = gpu_point("7b", 2048, 480, 8, "h100_80gb");
  fp8.precision = Precision::amp_fp8;
  CHECK(nearest_to(fp8) == "3b/2048 x8");
  // fp32 is never taken from bf16, nor one GPU from another.
  Point fp32 = gpu_point("1b", 2048, 480, 8, "h100_80gb");
  fp32.precision = Precision::fp32;
  CHECK(nearest_to(fp32) == "none");
  CHECK(nearest_to(gpu_point("1b", 2048, 480, 8, "h200")) == "none");
  // 2 million parameters are 6 doublings below the smallest.
  CHECK(nearest_to(gpu_point("cpu-2m", 2048, 480, 8, "a100_80gb")) == "none");
  // 16.0 doublings of the sequence.
  CHECK(nearest_to(gpu_point("llama-2-7b", std::int64_t{1} << 32, 8, 8, "h100_80gb")) == "none");
}

TEST_CASE("each published row is guessed from all the others") {
  std::vector<double> factors;
  for (std::size_t i = 0; i < mpt_rows().size(); ++i) {
    std::vector<PublishedRow> others = published_rows();
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    const PublishedRow* row = nearest_row(point_of(mpt_rows()[i]), others);
    REQUIRE(row != nullptr);
    factors.push_back(std::exp(std::abs(std::log(row->mfu / published_rows()[i].mfu))));
  }
  std::ranges::sort(factors);
  MESSAGE("guessed from the nearest other row: median "
          << factors[108] << ", 9 of 10 within " << factors[194] << ", worst " << factors.back());
  CHECK(factors[108] < 1.03);
  CHECK(factors[194] < 1.11);
  CHECK(factors.back() < 1.4);
}

TEST_CASE("rows within the farthest distance differ as little as its comment says") {
  std::vector<double> factors;
  for (const auto& cells : mpt_rows()) {
    const Point point = point_of(cells);
    for (const PublishedRow& row : published_rows()) {
      const auto away = distance(point, row);
      if (away && *away > 1e-9 && *away <= kFarthest)
        factors.push_back(std::exp(std::abs(std::log(100 * row.mfu / std::stod(cells.at("mfu"))))));
    }
  }
  std::ranges::sort(factors);
  MESSAGE(factors.size() << " pairs: median " << factors[factors.size() / 2] << ", 9 of 10 "
                         << factors[factors.size() * 9 / 10] << ", worst " << factors.back());
  CHECK(factors[factors.size() / 2] < 1.08);
  CHECK(factors.back() < 1.65);
}
