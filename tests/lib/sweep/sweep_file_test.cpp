// SPDX-License-Identifier: Apache-2.0
#include "lib/sweep/sweep_file.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/lib/sweep/grids.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::sweep;

namespace {

// Every key of the format.
constexpr auto kWhole = R"(
project: mpt-h100
defaults: {cluster: hgx, gpu: h100_80gb, precision: amp_bf16, mixed_precision: DEFAULT, sharding_strategy: FULL_SHARD,
           activation_checkpointing: none, steps: 30, warmup: 10, seed: 17}
matrix:
  model: [7b, 13b, my/llama.json]
  seq_len: [2048, 3072, 2^13]
  gpus: [8, 16]
  env.NCCL_PROTO: [null, LL128]
zip:
  - {microbatch_size: [6, 8], activation_checkpointing: [none, full]}
batch: {per_gpu: 48}
overrides:
  - {when: "model == '13b' and gpus == 8", set: {microbatch_size: 2, activation_checkpointing: full}}
exclude:
  - {model: 7b, gpus: 16}
  - {when: "seq_len * microbatch_size > 65536", reason: known OOM}
include:
  - {model: 70b, gpus: 64, seq_len: 2048, batch: {samples: 2048}, microbatch_size: 8, activation_checkpointing: full}
repeats: 3
limits: {time: auto, max_in_flight: 16, max_gpu_hours: 400, pack: 2h, stop_axis_after_oom: microbatch_size}
)";

std::string fault_of_file(const std::string& yaml) {
  try {
    test::grid_of(yaml);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::input);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("every key of the format is read") {
  const Grid grid = test::grid_of(kWhole);
  CHECK(grid.project == "mpt-h100");
  CHECK(grid.project_where == "s.yaml:3:10");
  CHECK(grid.defaults.size() == 9);
  REQUIRE(grid.matrix.has_value());
  CHECK(grid.matrix->axes.size() == 6);  // four, a zip group and the batch
  CHECK(grid.overrides.size() == 1);
  CHECK(grid.excludes.size() == 2);
  CHECK(grid.includes.size() == 1);
  CHECK(grid.repeats == 3);
  CHECK_FALSE(grid.limits.time_s.has_value());
  CHECK(grid.limits.max_in_flight == 16);
  CHECK(grid.limits.max_gpu_hours == 400);
  CHECK(grid.limits.pack_s == 7200);
  CHECK(grid.limits.stop_axis_after_oom == "microbatch_size");
  CHECK(settings_of(grid, "model").size() == 4);
}

TEST_CASE("a sweep without matrix and zip has no grid") {
  CHECK_FALSE(test::grid_of("batch: {samples: 8}\n").matrix.has_value());
  CHECK(test::grid_of("zip: [{model: [small]}]\n").matrix.has_value());
}

TEST_CASE("faults of a sweep file have their place") {
  CHECK(fault_of_file("matrixx: {model: 7b}\n") ==
        "s.yaml:2:1: unknown key 'matrixx' in a sweep; did you mean matrix?");
  CHECK(fault_of_file("matrix: {modle: 7b}\n") ==
        "s.yaml:2:10: 'modle' is no axis; did you mean model?");
  CHECK(fault_of_file("matrix: {model: 7b, model: 13b}\n") ==
        "s.yaml:2:21: key 'model' stands twice in this mapping; keep one of them");
  CHECK(fault_of_file("matrix: {seq_len: [2048, 011]}\n") ==
        "s.yaml:2:26: '011' has a leading zero; write a decimal integer or 2^n");
  CHECK(fault_of_file("matrix: {seq_len: 2^-3}\n") ==
        "s.yaml:2:19: '2^-3' has a negative exponent; write a decimal integer or 2^n");
  CHECK(fault_of_file("matrix: {seq_len: [2^63]}\n") ==
        "s.yaml:2:20: '2^63' does not fit 64 bits; write a decimal integer or 2^n");
  CHECK(fault_of_file("matrix: {seq_len: long}\n") ==
        "s.yaml:2:19: 'long' is not a decimal integer; write a decimal integer or 2^n");
  CHECK(fault_of_file("matrix: {seq_len: []}\n").find("the list is empty") != std::string::npos);
  CHECK(fault_of_file("matrix: [7b]\n") ==
        "s.yaml:2:9: a list where the matrix (a mapping) belongs");
  CHECK(fault_of_file("matrix: {model: 7b}\nzip: [{model: [a], seq_len: [1]}]\n") ==
        "s.yaml:3:8: 'model' is given twice; keep one of them");
  CHECK(fault_of_file("matrix: {model: 7b, global_batch: 8}\nbatch: {samples: 8}\n") ==
        "s.yaml:3:1: 'batch' is given twice; batch and global_batch are the same axis");
  CHECK(fault_of_file("zip: [{seq_len: [1, 2], gpus: [1]}]\n") ==
        "s.yaml:2:31: 'gpus' has 1 values where 'seq_len' has 2; the lists of a zip group are "
        "equally long");
  CHECK(fault_of_file("exclude: [{reason: x}]\n").find("either a partial point or an expression") !=
        std::string::npos);
  CHECK(fault_of_file("exclude: [{when: \"gpus == 1\", gpus: 2}]\n").find("either a partial") !=
        std::string::npos);
  CHECK(fault_of_file("overrides: [{when: \"gpu == 8\", set: {gpus: 1}}]\n") ==
        "s.yaml:2:20: column 5 of the expression: text is compared with a number");
  CHECK(fault_of_file("overrides: [{set: {gpus: 1}}]\n") ==
        "s.yaml:2:13: an override lacks 'when'");
  CHECK(fault_of_file("overrides: [{when: \"true\", set: {gpus: [1, 2]}}]\n") ==
        "s.yaml:2:40: a list where an integer belongs");
  CHECK(fault_of_file("overrides: {}\n") == "s.yaml:2:12: overrides must be a list");
  CHECK(fault_of_file("repeats: 0\n") == "s.yaml:2:10: 0 is out of range; from 1 to 99");
  CHECK(fault_of_file("limits: {pack: 2}\n") ==
        "s.yaml:2:16: '2' is no duration; write it like 90s, 30m, 2h, 1h30m or 04:00:00");
  CHECK(fault_of_file("limits: {stop_axis_after_oom: micro}\n")
            .find("'micro' cannot be stopped at") != std::string::npos);
  CHECK(fault_of_file("limits: {max_gpu_hours: -1}\n").find("is not positive") !=
        std::string::npos);
  CHECK(fault_of_file("tessera_sweep: 1\n").find("stands twice") != std::string::npos);
}

TEST_CASE("a file cut at any byte is read or refused, with one line") {
  const std::string whole = kWhole;
  int refused = 0;
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::string line = fault_of_file(whole.substr(0, length));
    if (line == "no error") continue;
    ++refused;
    CHECK(line.starts_with("s.yaml:"));
    CHECK(line.find('\n') == std::string::npos);
  }
  CHECK(refused > 500);
}

TEST_CASE("models are looked for beside the sweep file") {
  const test::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "my");
  std::ofstream(folder / "my/own.yaml") << "x";
  const std::string path = folder / "s.yaml";
  std::ofstream(path) << "tessera_sweep: 1\nmatrix: {model: [my/own.yaml, my/none.yaml, 7b]}\n";
  const auto models = settings_of(read_sweep(path), "model");
  REQUIRE(models.size() == 3);
  CHECK(std::get<std::string>(models[0].value) == (folder / "my/own.yaml").string());
  CHECK(std::get<std::string>(models[1].value) == "my/none.yaml");
}

TEST_CASE("token files are those beside the sweep file, whether they are there or not") {
  const test::TemporaryFolder folder;
  const std::string path = folder / "s.yaml";
  std::ofstream(path)
      << "tessera_sweep: 1\nmatrix: {model: [7b], seq_len: 16, global_batch: 2, data: "
         "[synthetic, a.u16, ../b/./c.tok, /d/e.tok]}\n"
         "exclude: [{data: a.u16}]\n";
  const Grid grid = read_sweep(path);
  std::vector<std::string> data;
  for (const Setting& setting : settings_of(grid, "data"))
    data.push_back(std::get<std::string>(setting.value));
  REQUIRE(data.size() >= 4);
  CHECK(data[0] == "synthetic");
  CHECK(data[1] == (folder / "a.u16").string());
  CHECK(data[2] == (folder.path().parent_path() / "b/c.tok").string());
  CHECK(data[3] == "/d/e.tok");
  CHECK(std::get<std::string>(grid.excludes[0].partial[0][0].value) == data[1]);
}

TEST_CASE("a sweep is a file or a built-in name") {
  CHECK(find_sweep("yamls/sweeps/quickstart.yaml", "") == "yamls/sweeps/quickstart.yaml");
  CHECK(find_sweep("quickstart", "").ends_with("yamls/sweeps/quickstart.yaml"));
  try {
    find_sweep("quickstrat", "--sweep");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) ==
          "--sweep: no sweep file 'quickstrat'; did you mean quickstart?");
  }
}
