// SPDX-License-Identifier: Apache-2.0
// The writers: names, escapes, digits, valid tables.
#include <doctest/doctest.h>

#include <sstream>

#include "collect/columns.h"
#include "collect/sizes.h"
#include "collect/writer_csv.h"
#include "collect/writer_markdown.h"
#include "tests/collect/csv_table.h"

using namespace tessera;
using namespace tessera::collect;

namespace {

Row sample_row() {
  Row row;
  row.status = runlog::Status::ok;
  row.project = "tput";
  row.run = "tput--7b-s2048-8g-0123456789ab";
  row.id = "0123456789ab";
  row.model = "7b";
  row.gpu = "h100_80gb";
  row.facts.ran<&sweep::Point::precision>() = "amp_bf16";
  row.mfu_pct = 46.444;
  row.tokens_per_s = 0.1 + 0.2;
  row.footer.steps.measured = 20;
  return row;
}

}  // namespace

TEST_CASE("the first 20 columns are the published ones, by name and order") {
  std::vector<std::string_view> names;
  for (const Column& column : columns().first(kPublishedColumns)) names.push_back(column.name);
  CHECK(names == std::vector<std::string_view>{"Model",
                                               "SeqLen (T)",
                                               "# GPUs",
                                               "GPU",
                                               "MFU",
                                               "HFU",
                                               "Model TFLOP",
                                               "MicroBatchSize",
                                               "GradAccum",
                                               "GlobalBatchSize",
                                               "Throughput (S/s)",
                                               "Throughput (T/s)",
                                               "Throughput (T/s/GPU)",
                                               "GlobalBatchSize (T)",
                                               "Precision",
                                               "MP Mode",
                                               "Sharding Strategy",
                                               "Activation Checkpointing",
                                               "Activation CPUOffload",
                                               "NumParams"});
}

TEST_CASE("the wide columns follow in the documented order, each once") {
  std::string names;
  for (const Column& column : columns().subspan(kPublishedColumns))
    names += std::string(column.name) + " ";
  CHECK(names ==
        "status reason project run id derived_from user cluster job attempt attempts repeats_ok "
        "repeats_asked marks "
        "steps_warmup steps_measured measured_s step_s_median step_s_mean step_s_p5 step_s_p95 "
        "step_s_max_over_ranks repeat_spread_pct token_basis "
        "flops_convention flops_per_token peak_tflops peak_source mfu_causal hfu_executed "
        "hfu_recompute gemm_measured_tflops gemm_pct "
        "mem_peak_bytes mem_planned_bytes data_wait_pct comm_exposed_pct queue_s startup_s wall_s "
        "gpu_hours "
        "loss_first loss_last grad_norm_last steps_skipped seed data attention recompute "
        "hybrid_group threads "
        "d_model n_layers n_heads n_kv_heads vocab n_trainable "
        "gpu_requested device_name nodes hosts sm_clock_min_mhz power_w_mean throttled driver cuda "
        "cublaslt cudnn nccl "
        "trainer commit image env engine reader started_utc ended_utc log "
        "label microbatch_asked steps_asked warmup_asked exact_steps deterministic "
        "deterministic_asked "
        "identity head_dim ffn norm positions activation biases tied cpu_share_pct "
        "fused_gelu fused_gelu_asked ");
}

TEST_CASE("CSV: LF, quotes where needed, digits that read back, empty where not known") {
  Row row = sample_row();
  row.reason = "a, \"b\"\nc";
  row.facts.env = std::map<std::string, std::string>{{"NCCL_PROTO", "LL128"}, {"X", "1"}};
  const std::vector<Row> rows = {row};
  const std::string text = csv(rows);
  CHECK(text.find('\r') == std::string::npos);
  CHECK(text.ends_with("\n"));
  CHECK(text.find(R"("a, ""b""
c")") != std::string::npos);
  const auto table = test::csv_table(text);
  REQUIRE(table.size() == 1);
  CHECK(table[0].at("reason") == row.reason);
  CHECK(table[0].at("env") == "NCCL_PROTO=LL128 X=1");
  CHECK(std::stod(table[0].at("Throughput (T/s)")) == 0.1 + 0.2);
  CHECK(table[0].at("HFU").empty());
  CHECK(table[0].at("wall_s").empty());
}

TEST_CASE("a figure that is no number is empty, never nan or inf") {
  Row row = sample_row();
  row.footer.steps.loss_last = std::numeric_limits<double>::quiet_NaN();
  row.mfu_pct = std::numeric_limits<double>::infinity();
  const std::vector<Row> rows = {row};
  const auto table = test::csv_table(csv(rows));
  CHECK(table[0].at("loss_last").empty());
  CHECK(table[0].at("MFU").empty());
}

TEST_CASE("Markdown: every table has a heading, a separator and cells of one count") {
  Row failed = sample_row();
  failed.status = runlog::Status::oom;
  failed.reason = "a | b\\c\nd";
  Row marked = sample_row();
  marked.gpu = "cpu";
  marked.marks = {Mark::shared, Mark::emulated};
  const std::vector<Row> rows = {sample_row(), marked, failed};
  const std::string text = markdown(rows, "Results of tput");
  std::istringstream lines(text);
  std::size_t cells = 0;
  int tables = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("|")) {
      cells = 0;
      continue;
    }
    const auto of_line = test::markdown_cells(line);
    if (cells == 0) {
      cells = of_line.size();
      std::getline(lines, line);
      CHECK(test::markdown_cells(line) == std::vector<std::string>(cells, "---"));
      ++tables;
    } else {
      CHECK(of_line.size() == cells);
    }
  }
  CHECK(tables == 3);
  CHECK(text.find("a \\| b\\\\c d") != std::string::npos);
  CHECK(text.find("| 7b [^shared] [^emulated] |") != std::string::npos);
  CHECK(text.find("[^shared]: ") != std::string::npos);
  CHECK(text.find("[^stale]") == std::string::npos);
}

TEST_CASE("numbers for people: three digits below 100, two places for MFU") {
  CHECK(three_digits(0.7251) == "0.725");
  CHECK(three_digits(41.5742) == "41.6");
  CHECK(three_digits(9.996) == "10.0");
  CHECK(three_digits(99.96) == "100");
  CHECK(three_digits(251.77) == "252");
  CHECK(three_digits(85144.3) == "85144");
  CHECK(three_digits(0) == "0");
  CHECK(three_digits(0.00012345) == "0.000123");
  CHECK(three_digits(-1.5) == "-1.50");
  CHECK(two_places(55) == "55.00");
  CHECK(short_count(6658859008) == "6.66b");
  CHECK(short_count(125311488) == "125m");
  CHECK(short_count(999600000) == "1.00b");
  CHECK(short_count(2145984) == "2.15m");
  CHECK(short_count(960) == "960");
}

TEST_CASE("Model is the built-in name only for that model's very shape") {
  const model::Shape shape = [] {
    model::Shape seven;
    seven.d_model = 4096;
    seven.n_layers = 32;
    seven.n_heads = seven.n_kv_heads = 32;
    seven.head_dim = 128;
    seven.ffn = 16384;
    seven.vocab = 50368;
    return seven;
  }();
  CHECK(model_name("7b", shape, 6658859008) == "7b");
  CHECK(model_name("7b.yaml", shape, 6658859008) == "7b");
  CHECK(model_name("13b", shape, 6658859008) == "custom(6.66b)");
  CHECK(model_name("my/7b.yaml", shape, 6658859008) == "custom(6.66b)");
  model::Shape other = shape;
  other.positions = model::Positions::alibi;
  CHECK(model_name("7b", other, 6650470400) == "custom(6.65b)");
  CHECK(model_name("7b", std::nullopt, std::nullopt).empty());
}
