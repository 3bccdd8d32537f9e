// SPDX-License-Identifier: Apache-2.0
// Two rows that differ in any axis look different, in both tables; rows without a run say what they
// would have been.
#include <doctest/doctest.h>

#include <functional>
#include <sstream>

#include "collect/collection.h"
#include "collect/writer_csv.h"
#include "collect/writer_markdown.h"
#include "collect/writer_mosaic.h"
#include "lib/ledger/ledger.h"
#include "tests/collect/csv_table.h"
#include "tests/collect/sample_run.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::collect;

namespace {

using Change = std::function<void(sweep::Point&)>;

// Every axis of a point that the 20 columns do not show.
const std::vector<std::pair<std::string, Change>> kAxes = {
    {"threads", [](sweep::Point& p) { p.threads = 2; }},
    {"seed", [](sweep::Point& p) { p.seed = 18; }},
    {"steps", [](sweep::Point& p) { p.steps = 31; }},
    {"warmup", [](sweep::Point& p) { p.warmup = 11; }},
    {"exact_steps", [](sweep::Point& p) { p.exact_steps = true; }},
    {"deterministic", [](sweep::Point& p) { p.deterministic = true; }},
    {"fused_gelu", [](sweep::Point& p) { p.fused_gelu = true; }},
    {"data", [](sweep::Point& p) { p.data = "other"; }},
    {"cluster", [](sweep::Point& p) { p.cluster = "other"; }},
    {"env.OMP_PROC_BIND", [](sweep::Point& p) { p.env["OMP_PROC_BIND"] = "close"; }},
    {"identity.site", [](sweep::Point& p) { p.identity["site"] = "b"; }},
    {"hybrid_group", [](sweep::Point& p) { p.hybrid_group = 1; }},
};

sweep::Point point_on_cpu() {
  sweep::Point point = test::sample_point("cpu-2m", 64, 8, 2, 4);
  point.gpu = "cpu";
  point.threads = 1;
  point.sharding_strategy = Sharding::hybrid_shard;
  point.hybrid_group = 2;
  return point;
}

test::SampleRun run_of(const sweep::Point& point) {
  test::SampleRun run;
  run.label = "cpu-2m";
  run.point = point;
  run.device = "AMD EPYC 9654";
  run.gpu = "cpu";
  run.peak_tflops = 0.5;
  return run;
}

Collection collect_from(const test::TemporaryFolder& folder) {
  Request request;
  request.projects = {{.workspace = folder.path(), .name = "tput"}};
  request.catalogues.built_in = hardware::built_in_catalogue();
  return collect_rows(request);
}

// Cells of the first table of `markdown`, head first.
std::vector<std::vector<std::string>> first_table(const std::string& markdown) {
  std::vector<std::vector<std::string>> table;
  std::istringstream lines(markdown);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("|")) {
      table.push_back(test::markdown_cells(line));
    } else if (!table.empty()) {
      break;
    }
  }
  table.erase(table.begin() + 1);
  return table;
}

std::string value_in(const std::vector<std::vector<std::string>>& table, std::size_t row,
                     const std::string& column) {
  const auto at = std::ranges::find(table[0], column);
  REQUIRE(at != table[0].end());
  return table[row][static_cast<std::size_t>(at - table[0].begin())];
}

}  // namespace

TEST_CASE("an axis that varies has a column behind the 20, one that does not has none") {
  for (const auto& [axis, change] : kAxes) {
    const test::TemporaryFolder folder;
    sweep::Point other = point_on_cpu();
    change(other);
    test::write_sample(folder.path(), run_of(point_on_cpu()));
    test::write_sample(folder.path(), run_of(other));
    const Collection collection = collect_from(folder);
    CAPTURE(axis);
    REQUIRE(collection.rows.size() == 2);
    const auto table = first_table(markdown(collection.rows, "x"));
    REQUIRE(table[0].size() == 21);
    CHECK(table[0][20] == axis);
    CHECK(table[1][20] != table[2][20]);
    CHECK_FALSE(table[1][20].empty());
    CHECK_FALSE(table[2][20].empty());
    CHECK(first_table(mosaic_markdown(collection.rows))[0].size() == 20);
    // The CSV has it too, whatever the names.
    auto rows = test::csv_table(csv(collection.rows));
    for (auto& row : rows) {
      for (const char* name : {"run", "id", "log"}) row.erase(name);
    }
    CHECK(rows[0] != rows[1]);
  }
}

TEST_CASE("the columns of axes follow the table: another GPU's rows have none") {
  const test::TemporaryFolder folder;
  sweep::Point other = point_on_cpu();
  other.threads = 2;
  test::SampleRun gpu;
  gpu.point = test::sample_point("7b", 2048, 48, 6);
  test::write_sample(folder.path(), run_of(point_on_cpu()));
  test::write_sample(folder.path(), run_of(other));
  test::write_sample(folder.path(), gpu);
  const std::string text = markdown(collect_from(folder).rows, "x");
  CHECK(first_table(text)[0].size() == 20);
  CHECK(text.find("| NumParams | threads |\n") != std::string::npos);
}

TEST_CASE("peaks of one group say what they differ in, or their range") {
  const test::TemporaryFolder folder;
  test::SampleRun run = run_of(point_on_cpu());
  run.peak_source = "measured: f32 GEMM, 1 thread";
  test::write_sample(folder.path(), run);
  run.point.seed = 18;
  run.peak_tflops = 0.53;
  test::write_sample(folder.path(), run);
  run.point.threads = 2;
  run.peak_tflops = 0.9;
  run.peak_source = "measured: f32 GEMM, 2 threads";
  test::write_sample(folder.path(), run);
  run.point.seed = 19;
  run.peak_source = "measured: f32 GEMM, 2 threads, beside others";
  run.peak_disturbed = "other-work";
  run.peak_tflops = 0.7;
  test::write_sample(folder.path(), run);
  const std::string text = markdown(collect_from(folder).rows, "x");
  for (const std::string line :
       {"* Peak of cpu, amp_bf16, 1 thread: 0.5 to 0.53 TFLOP/s a device (measured: f32 GEMM, 1 "
        "thread; each row's own is `peak_tflops` of the CSV).\n",
        "* Peak of cpu, amp_bf16, 2 threads: 0.9 TFLOP/s a device (measured: f32 GEMM, 2 "
        "threads).\n",
        "* Peak of cpu, amp_bf16, 2 threads: 0.7 TFLOP/s a device (measured: f32 GEMM, 2 threads, "
        "beside others).\n"}) {
    CAPTURE(text);
    CHECK(text.find(line) != std::string::npos);
  }
  // Only what was: nothing ran beside the runs.
  CHECK(text.find("[^shared-peak]: ") != std::string::npos);
  CHECK(text.find("[^shared]") == std::string::npos);
}

TEST_CASE("missing and skipped rows say what the point would have been") {
  const test::TemporaryFolder folder;
  const sweep::Point point = point_on_cpu();
  const std::string id = sweep::point_id(point);
  ledger::Entry plan;
  plan.points = {{.id = id,
                  .run = sweep::run_name("tput", "cpu-2m-s64-4g", id, 1),
                  .label = "cpu-2m",
                  .repeats = 1,
                  .point = point}};
  plan.dropped = {{.label = "cpu-2m",
                   .reason = "constraint",
                   .detail = "no cpu-2m at 128",
                   .values = {{"model", "cpu-2m"},
                              {"seq_len", "128"},
                              {"gpu", "cpu"},
                              {"gpus", "1"},
                              {"batch", "per_gpu 8"},
                              {"microbatch_size", "4"},
                              {"precision", "fp32"},
                              {"threads", "2"},
                              {"env.FOO", "a"},
                              {"activation_checkpointing", "full"}}},
                  {.label = "own",
                   .reason = "batch",
                   .detail = "9 % 8",
                   .values = {{"model", "own.yaml"}, {"seq_len", "64"}, {"gpu", "cpu"}}},
                  {.label = "old", .reason = "batch", .detail = "9 % 8 gpus=8"}};
  ledger::Ledger(folder / "tput", "kim", "n1").append(plan);
  const Collection collection = collect_from(folder);
  const auto rows = test::csv_table(csv(collection.rows));
  REQUIRE(rows.size() == 4);
  const auto with = [&](const std::string& model, const std::string& seq_len) {
    const auto found = std::ranges::find_if(rows, [&](const auto& row) {
      return row.at("Model") == model && row.at("SeqLen (T)") == seq_len;
    });
    REQUIRE(found != rows.end());
    return *found;
  };
  const auto missing = with("cpu-2m", "64");
  CHECK(missing.at("status") == "missing");
  CHECK(missing.at("GlobalBatchSize") == "8");
  CHECK(missing.at("NumParams") != "");
  CHECK(missing.at("Sharding Strategy") == "HYBRID_SHARD");
  const auto skipped = with("cpu-2m", "128");
  CHECK(skipped.at("status") == "skipped");
  CHECK(skipped.at("reason") == "constraint: no cpu-2m at 128");
  for (const auto& [column, value] : {std::pair{"# GPUs", "1"},
                                      {"GPU", "cpu"},
                                      {"Precision", "fp32"},
                                      {"MP Mode", "DEFAULT"},
                                      {"MicroBatchSize", "4"},
                                      {"GlobalBatchSize", "8"},
                                      {"Sharding Strategy", "NO_SHARD"},
                                      {"Activation Checkpointing", "True"},
                                      {"threads", "2"},
                                      {"seed", "17"},
                                      {"env", "FOO=a"},
                                      {"GradAccum", "2"}}) {
    CAPTURE(column);
    CHECK(skipped.at(column) == value);
  }
  CHECK(with("own", "64").at("NumParams").empty());
  CHECK(with("old", "").at("reason") == "batch: 9 % 8 gpus=8");
  // Rows without a result also show what varies against the measured ones.
  const auto one = std::ranges::find(collection.rows, runlog::Status::skipped, &Row::status);
  std::vector<Row> beside{*one, *one};
  beside[0].status = runlog::Status::ok;
  beside[0].facts.ran<&sweep::Point::threads>() = 4;
  CHECK(markdown(beside, "x").find("| Activation Checkpointing | threads | status |") !=
        std::string::npos);
  const auto table = first_table(markdown(collection.rows, "x"));
  CHECK(std::ranges::find(table[0], "env.FOO") != table[0].end());
  for (std::size_t i = 1; i < table.size(); ++i) {
    if (value_in(table, i, "SeqLen (T)") == "128") {
      CHECK(value_in(table, i, "env.FOO") == "a");
      CHECK(value_in(table, i, "threads") == "2");
    }
  }
}

TEST_CASE("a point is in one row: of its run, or as the last plan that named it says") {
  const auto rows_after = [](const std::vector<bool>& selected, bool ran) {
    const test::TemporaryFolder folder;
    sweep::Point point = test::sample_point("cpu-2m", 64, 8, 2, 1);
    point.gpu = "cpu";
    point.threads = 2;
    const std::string id = sweep::point_id(point);
    const std::string run = sweep::run_name("tput", "cpu-2m-s64-1g", id, 1);
    ledger::Ledger ledger(folder / "tput", "kim", "n1");
    for (const bool each : selected) {
      ledger::Entry plan;
      if (each) {
        plan.points = {{.id = id, .run = run, .label = "cpu-2m", .repeats = 1, .point = point}};
      } else {
        plan.dropped = {{.label = "cpu-2m",
                         .reason = "constraint",
                         .detail = "excluded",
                         .values = {{"model", "cpu-2m"},
                                    {"cluster", "hgx"},
                                    {"seq_len", "64"},
                                    {"gpu", "cpu"},
                                    {"gpus", "1"},
                                    {"batch", "samples 8"},
                                    {"microbatch_size", "2"}}}};
      }
      ledger.append(plan);
    }
    if (ran) test::write_sample(folder.path(), run_of(point));
    std::string statuses;
    for (const Row& row : collect_from(folder).rows)
      statuses += std::string(to_text(row.status)) + " ";
    return statuses;
  };
  CHECK(rows_after({true}, false) == "missing ");
  CHECK(rows_after({false}, false) == "skipped ");
  CHECK(rows_after({false, true}, false) == "missing ");
  CHECK(rows_after({true, false}, false) == "skipped ");
  CHECK(rows_after({true, false}, true) == "ok ");
  CHECK(rows_after({false, true}, true) == "ok ");
}
