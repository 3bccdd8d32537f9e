// SPDX-License-Identifier: Apache-2.0
// The results on a terminal: the settings that vary, the figures, marks and runs without a result.
#include <doctest/doctest.h>

#include <sstream>

#include "collect/writer_terminal.h"

using namespace tessera;
using namespace tessera::collect;

namespace {

Row row_of(const std::string& model, std::int64_t seq_len, double mfu_pct, double tokens_per_s) {
  Row row;
  row.status = runlog::Status::ok;
  row.model = model;
  row.run = "tput--" + model + "-s" + std::to_string(seq_len);
  row.gpu = "h100_80gb";
  row.facts.ran<&sweep::Point::seq_len>() = seq_len;
  row.facts.ran<&sweep::Point::gpus>() = 8;
  row.facts.ran<&sweep::Point::precision>() = "amp_bf16";
  row.mfu_pct = mfu_pct;
  row.hfu_pct = mfu_pct;
  row.tokens_per_s = tokens_per_s;
  row.tokens_per_s_per_gpu = tokens_per_s / 8;
  return row;
}

Row failed_row() {
  Row row = row_of("70b", 2048, 0, 0);
  row.status = runlog::Status::oom;
  row.reason = "out of device memory: the plan needs 172.7 GiB, the device has 137.7 GiB of it";
  row.mfu_pct = row.hfu_pct = row.tokens_per_s = row.tokens_per_s_per_gpu = std::nullopt;
  return row;
}

}  // namespace

TEST_CASE("settings that vary and the figures are columns, the others stand above") {
  const std::vector<Row> rows{row_of("7b", 2048, 46.444, 81200), row_of("7b", 4096, 45, 70400)};
  CHECK(terminal_table(rows, 80) ==
        "Common: GPUs=8 GPU=h100_80gb Precision=amp_bf16\n"
        "\n"
        "Model  SeqLen    MFU    HFU    T/s  T/s/GPU\n"
        "7b       2048  46.44  46.44  81200    10150\n"
        "7b       4096  45.00  45.00  70400     8800\n");
}

TEST_CASE("marks are a column, and their meaning stands below") {
  std::vector<Row> rows{row_of("7b", 2048, 46, 81200), row_of("7b", 4096, 45, 70400)};
  rows[1].marks = {Mark::partial, Mark::busy};
  const std::string text = terminal_table(rows, 80);
  CAPTURE(text);
  CHECK(text.find("  T/s/GPU  marks\n") != std::string::npos);
  CHECK(text.find("  partial busy\n") != std::string::npos);
  CHECK(text.find("\npartial: cut short") != std::string::npos);
  CHECK(text.find("\nbusy: its threads") != std::string::npos);
}

TEST_CASE("a run without a result is told with its status and reason") {
  const std::vector<Row> both{row_of("7b", 2048, 46, 81200), failed_row()};
  const std::string text = terminal_table(both, 80);
  CAPTURE(text);
  CHECK(text.find("\nWithout a result:\n") != std::string::npos);
  CHECK(text.find("status=oom") != std::string::npos);
  const std::vector<Row> one{failed_row()};
  CHECK(terminal_table(one, 80).starts_with("Without a result:\n"));
  CHECK(terminal_table({}, 80).empty());
}

TEST_CASE("no line is wider than the terminal") {
  std::vector<Row> rows;
  for (const std::int64_t seq_len : {512, 1024}) {
    Row row = row_of("custom(1.23b)", seq_len, 46.44, 123456);
    row.gpu = seq_len == 512 ? "h100_80gb" : "a100_40gb";
    row.facts.ran<&sweep::Point::gpus>() = seq_len;
    row.facts.ran<&sweep::Point::precision>() = seq_len == 512 ? "amp_bf16" : "fp32";
    row.facts.ran<&sweep::Point::microbatch_size>() = seq_len;
    row.facts.ran<&sweep::Point::global_batch>() = seq_len * 8;
    row.facts.ran<&sweep::Point::sharding_strategy>() =
        seq_len == 512 ? "FULL_SHARD" : "SHARD_GRAD_OP";
    row.marks = {Mark::above_peak};
    rows.push_back(row);
  }
  rows.push_back(failed_row());
  for (const std::size_t width : {60U, 80U, 200U}) {
    std::istringstream lines(terminal_table(rows, width));
    for (std::string line; std::getline(lines, line);) {
      CAPTURE(line);
      CHECK(line.size() <= width);
    }
  }
}
