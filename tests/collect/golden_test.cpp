// SPDX-License-Identifier: Apache-2.0
// Golden logs give golden tables, byte for byte. TESSERA_UPDATE_GOLDEN=1 writes both anew: read the
// difference before you commit it.
#include <doctest/doctest.h>

#include <cstdlib>

#include "collect/collection.h"
#include "collect/writer_csv.h"
#include "collect/writer_markdown.h"
#include "tests/collect/sample_run.h"

using namespace tessera;
using runlog::Status;

namespace fs = std::filesystem;

namespace {

const fs::path kLogs = "tests/data/logs";
const fs::path kResults = "tests/data/results";

struct GoldenFile {
  fs::path path;
  std::string text;
};

test::SampleRun named(std::string label, sweep::Point point) {
  test::SampleRun run;
  run.project = "golden";
  run.label = std::move(label);
  run.point = std::move(point);
  return run;
}

test::SampleRun on_cpu(test::SampleRun run) {
  run.point.gpu = "cpu";
  run.point.cluster = "local";
  run.point.threads = 2;
  run.point = sweep::normalized(run.point);
  run.device = "Some CPU @ 2.0GHz";
  run.device_count = 1;
  run.gpu = "cpu";
  run.peak_tflops = 0.125;
  run.peak_source = "measured: fp32 matrix product, 2 threads";
  return run;
}

std::vector<GoldenFile> golden_logs() {
  std::vector<GoldenFile> files;
  const auto add_text = [&](const test::SampleRun& run, std::string text, int rank = 0) {
    files.push_back({kLogs / run.project / test::name_of(run) /
                         runlog::log_file_name(run.attempt, run.restart, rank),
                     std::move(text)});
  };
  const auto add = [&](const test::SampleRun& run) { add_text(run, test::sample_log(run)); };

  // Three repeats: the middle one is the row.
  test::SampleRun repeated = named("7b", test::sample_point("7b", 2048, 48, 6));
  repeated.repeats = 3;
  for (const double step_s : {1.15, 1.25, 1.16}) {
    repeated.step_s = step_s;
    add(repeated);
    ++repeated.repeat;
  }

  // Points that differ only in microbatch, checkpointing or sharding.
  test::SampleRun other = named("7b", test::sample_point("7b", 2048, 48, 3));
  add(other);
  other.point.activation_checkpointing = Checkpointing::full;
  other.step_s = 1.5;
  add(other);
  other.point.sharding_strategy = Sharding::shard_grad_op;
  other.throttled = {"power"};
  add(other);

  // 125m run under the name 7b.
  add(named("7b", test::sample_point("125m", 2048, 48, 6)));

  test::SampleRun out_of_memory = named("13b", test::sample_point("13b", 2048, 64, 8));
  out_of_memory.status = Status::oom;
  out_of_memory.reason = "allocating 2147483648 bytes of 91226112 free";
  add(out_of_memory);

  test::SampleRun cut = named("13b", test::sample_point("13b", 2048, 32, 4));
  std::string text = test::sample_log(cut);
  add_text(cut, text.substr(0, text.rfind(R"(,"crc")") + 8));

  // A later attempt, of another build, failed.
  test::SampleRun retried = named("7b", test::sample_point("7b", 4096, 24, 3));
  add(retried);
  retried.attempt = 2;
  retried.commit = "ef56ab78";
  retried.status = Status::comm_error;
  retried.reason = "rank 3 does not answer";
  add(retried);

  // Nobody was left to write a footer, but a rank told why.
  test::SampleRun silent = named("7b", test::sample_point("7b", 8192, 16, 2));
  silent.footer = false;
  silent.measured = 0;
  silent.warmup = 1;
  add(silent);
  runlog::Origin rank5 = test::origin_of(silent);
  rank5.rank = 5;
  test::LogText events(rank5);
  events.add(runlog::Kind::event,
             {{"kind", "oom"}, {"requested_bytes", 2147483648}, {"free_bytes", 91226112}});
  add_text(silent, events.text(), 5);

  test::SampleRun wrong_device = named("1b", test::sample_point("1b", 2048, 64, 8));
  wrong_device.device = "";
  wrong_device.status = Status::start_fail;
  wrong_device.reason = "asked for h100_80gb, found 'Tesla T4' | 1 of 8, \"busy\"";
  add(wrong_device);

  test::SampleRun unknown_device = named("1b", test::sample_point("1b", 2048, 128, 16));
  unknown_device.device = "NVIDIA Z900";
  unknown_device.gpu.reset();
  unknown_device.peak_tflops.reset();
  add(unknown_device);

  test::SampleRun small = on_cpu(named("cpu-2m", test::sample_point("cpu-2m", 128, 8, 4, 1)));
  small.point.precision = Precision::fp32;
  small.point = sweep::normalized(small.point);
  small.step_s = 0.1875;
  add(small);
  small.point.precision = Precision::amp_bf16;
  small.emulated = true;
  small.shared_with = 1;
  small.measured = 4;
  small.cpu_share = 0.8321;
  add(small);
  return files;
}

void compare_or_update(const fs::path& path, const std::string& text) {
  if (std::getenv("TESSERA_UPDATE_GOLDEN") != nullptr) {
    make_directories(path.parent_path());
    write_file_atomically(path, text);
  }
  CAPTURE(path.string());
  const auto golden = read_file_if_exists(path);
  REQUIRE(golden.has_value());
  CHECK(*golden == text);
}

}  // namespace

TEST_CASE("the golden logs are what a trainer would write") {
  for (const GoldenFile& file : golden_logs()) compare_or_update(file.path, file.text);
}

TEST_CASE("golden logs give the golden results, byte for byte") {
  collect::Request request;
  request.projects = {{.workspace = kLogs, .name = "golden"}};
  request.catalogues.built_in = hardware::built_in_catalogue();
  const collect::Collection collection = collect::collect_rows(request);
  CHECK(collection.runs == 15);
  REQUIRE(collection.notes.lines().size() == 1);
  CHECK(collection.notes.lines()[0].ends_with("log.1.0.0.jsonl: 1 damaged line left out"));
  compare_or_update(kResults / "golden.csv", collect::csv(collection.rows));
  compare_or_update(kResults / "golden.md",
                    collect::markdown(collection.rows, "Results of golden"));
}
