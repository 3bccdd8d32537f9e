// SPDX-License-Identifier: Apache-2.0
// Which runs are found: by project, folder, filter and file.
#include "collect/find.h"

#include <doctest/doctest.h>

#include <set>

#include "collect/collection.h"
#include "lib/base/error.h"
#include "lib/ledger/ledger.h"
#include "lib/point/run_spec.h"
#include "tests/collect/sample_run.h"
#include "tests/temporary.h"

using namespace tessera;
using runlog::Status;

namespace {

collect::Request request() {
  collect::Request asked;
  asked.catalogues.built_in = hardware::built_in_catalogue();
  return asked;
}

std::set<std::string> projects_of(const collect::Collection& collection) {
  std::set<std::string> projects;
  for (const collect::Row& row : collection.rows) projects.insert(row.project);
  return projects;
}

}  // namespace

TEST_CASE("a run's name has project, id and repeat") {
  const auto name = collect::parse_run_name("mpt-h100--7b-s2048-8g-1f0c9a3b77de-r2");
  REQUIRE(name.has_value());
  CHECK(name->project == "mpt-h100");
  CHECK(name->id == "1f0c9a3b77de");
  CHECK(name->repeat == 2);
  CHECK(collect::parse_run_name("a--r2-1f0c9a3b77de")->repeat == 1);
  for (const char* other : {"", "--x-1f0c9a3b77de", "tput-7b-1f0c9a3b77de", "tput--1f0c9a3b77de",
                            "tput--7b-1F0C9A3B77DE", "tput--7b-1f0c9a3b77d", ".tessera"}) {
    CAPTURE(other);
    CHECK_FALSE(collect::parse_run_name(other).has_value());
  }
}

TEST_CASE("a project never takes another's runs, though its name begins alike") {
  const test::TemporaryFolder folder;
  test::write_sample(folder.path(), test::sample_7b("mpt"));
  test::write_sample(folder.path(), test::sample_7b("mpt-h100"));
  collect::Request asked = request();
  asked.projects = {{.workspace = folder.path(), .name = "mpt"}};
  CHECK(projects_of(collect::collect_rows(asked)) == std::set<std::string>{"mpt"});
  asked.projects.clear();
  asked.folders = {folder.path()};
  CHECK(projects_of(collect::collect_rows(asked)) == std::set<std::string>{"mpt", "mpt-h100"});
  asked.selection.project = "mpt";
  CHECK(projects_of(collect::collect_rows(asked)) == std::set<std::string>{"mpt"});
  asked.selection.project = "mp";
  CHECK(collect::collect_rows(asked).rows.empty());
}

TEST_CASE("filters are texts of the run's name, all of which must hold") {
  const test::TemporaryFolder folder;
  test::SampleRun run = test::sample_7b();
  test::write_sample(folder.path(), run);
  run.point = test::sample_point("7b", 4096, 48, 6);
  test::write_sample(folder.path(), run);
  collect::Request asked = request();
  asked.projects = {{.workspace = folder.path(), .name = "tput"}};
  asked.selection.filters = {"7b", "s4096"};
  CHECK(collect::collect_rows(asked).rows.size() == 1);
  asked.selection.filters = {"s2048", "s4096"};
  CHECK(collect::collect_rows(asked).rows.empty());
}

TEST_CASE("a folder given twice, or a link to it, does not double its runs") {
  const test::TemporaryFolder folder;
  const auto run_folder = test::write_sample(folder / "a", test::sample_7b());
  std::filesystem::create_directory_symlink(folder / "a", folder / "link");
  collect::Request asked = request();
  asked.folders = {folder / "a", folder / "link", run_folder};
  const auto collection = collect::collect_rows(asked);
  CHECK(collection.runs == 1);
  CHECK(collection.rows.at(0).attempts == 1);
}

TEST_CASE("a renamed folder's run keeps the name that its log has") {
  const test::TemporaryFolder folder;
  const auto run_folder = test::write_sample(folder.path(), test::sample_7b());
  std::filesystem::rename(run_folder, folder / "copied");
  collect::Request asked = request();
  asked.folders = {folder / "copied"};
  CHECK(collect::collect_rows(asked).rows.at(0).run == test::name_of(test::sample_7b()));
}

TEST_CASE("logs are read as files: captured output of two runs is two rows, a copy is none") {
  const test::TemporaryFolder folder;
  test::SampleRun other = test::sample_7b();
  other.point.microbatch_size = 3;
  write_file_atomically(folder / "pod.log", "starting\n" + test::sample_log(test::sample_7b()) +
                                                test::sample_log(other) + "done\n");
  write_file_atomically(folder / "copy.log", test::sample_log(other));
  write_file_atomically(folder / "notes.txt", "hello\n");
  write_file_atomically(folder / "empty.txt", "");
  collect::Request asked = request();
  asked.logs = {folder.path()};
  const auto collection = collect::collect_rows(asked);
  CHECK(collection.rows.size() == 2);
  for (const auto& row : collection.rows) {
    CHECK(row.status == Status::ok);
    CHECK(row.attempts == 1);
  }
  CHECK(collection.notes.lines() ==
        std::vector<std::string>{
            (folder / "empty.txt").string() + ": empty; left out",
            (folder / "notes.txt").string() + ": no record of a run log in it; left out"});
}

TEST_CASE("what cannot be found or read is an error or a note that names it") {
  const test::TemporaryFolder folder;
  collect::Request asked = request();
  asked.logs = {folder / "none.log"};
  CHECK_THROWS_WITH_AS(
      collect::collect_rows(asked),
      ((folder / "none.log").string() + ": cannot be read: No such file or directory").c_str(),
      Error);
  asked.logs.clear();
  asked.folders = {folder / "none"};
  CHECK_THROWS_AS(collect::collect_rows(asked), Error);
  // A folder where a log should be.
  const auto run_folder = test::write_sample(folder.path(), test::sample_7b());
  std::filesystem::create_directory(run_folder / "log.2.0.0.jsonl");
  asked.folders = {folder.path()};
  const auto collection = collect::collect_rows(asked);
  CHECK(collection.rows.at(0).status == Status::ok);
  REQUIRE(collection.notes.lines().size() == 1);
  CHECK(collection.notes.lines()[0] ==
        (run_folder / "log.2.0.0.jsonl").string() + ": cannot be read: Is a directory; left out");
}

TEST_CASE("the ledger's points without a log are rows, each with its status") {
  const test::TemporaryFolder folder;
  const test::SampleRun ran = test::sample_7b();
  test::write_sample(folder.path(), ran);
  ledger::Ledger book(folder / "tput", "kim", "login");
  const auto planned = [](const std::string& id, const std::string& run) {
    return ledger::PlannedPoint{.id = id, .run = run, .label = "7b", .repeats = 3};
  };
  const auto name = [](const std::string& id) { return "tput--7b-s2048-8g-" + id; };
  const std::string submitted = "aaaaaaaaaaaa";
  const std::string lost = "bbbbbbbbbbbb";
  const std::string never = "cccccccccccc";
  const std::string preempted = "dddddddddddd";
  book.append(
      {.op = ledger::Op::plan,
       .points = {planned(test::id_of(ran), test::name_of(ran)),
                  planned(submitted, name(submitted)), planned(lost, name(lost)),
                  planned(never, name(never)), planned(preempted, name(preempted))},
       .dropped = {{.label = "70b", .reason = "batch", .detail = "1 does not divide by 8"}}});
  const auto append = [&](ledger::Op op, const std::string& id, std::optional<Status> status = {}) {
    book.append({.op = op,
                 .cluster = "hgx",
                 .job = op == ledger::Op::intent ? "" : "77",
                 .runs = {{.run = name(id), .id = id}},
                 .status = status,
                 .reason = status ? "higher priority" : "",
                 .queue_s = status ? std::optional(12.5) : std::nullopt});
  };
  append(ledger::Op::intent, submitted);
  append(ledger::Op::accepted, submitted);
  // Its specification is there, its log is not: it waits.
  make_directories(folder / "tput" / name(submitted));
  write_file_atomically(folder / "tput" / name(submitted) / "run.1.json",
                        sweep::run_spec_json({.project = "tput",
                                              .id = submitted,
                                              .run = name(submitted),
                                              .label = "7b",
                                              .point = ran.point}));
  append(ledger::Op::intent, lost);
  append(ledger::Op::intent, preempted);
  append(ledger::Op::accepted, preempted);
  append(ledger::Op::final, preempted, Status::preempted);

  collect::Request asked = request();
  asked.projects = {{.workspace = folder.path(), .name = "tput"}};
  const auto collection = collect::collect_rows(asked);
  std::map<std::string, collect::Row> rows;
  for (const auto& row : collection.rows) rows[row.id] = row;
  REQUIRE(rows.size() == 6);
  CHECK(rows[test::id_of(ran)].status == Status::ok);
  CHECK(rows[test::id_of(ran)].repeats_asked == 3);
  CHECK(rows[submitted].status == Status::unknown);
  CHECK(rows[submitted].reason == "job 77: its cluster cannot be asked");
  CHECK(rows[submitted].facts.job == "77");
  CHECK(rows[submitted].facts.ran<&sweep::Point::seq_len>() == 2048);
  CHECK(rows[submitted].model == "7b");
  CHECK(rows[lost].status == Status::unknown);
  CHECK(rows[never].status == Status::missing);
  CHECK(rows[never].attempts == 0);
  CHECK(rows[preempted].status == Status::preempted);
  CHECK(rows[preempted].reason == "higher priority");
  CHECK(rows[preempted].queue_s == 12.5);
  CHECK(rows[""].status == Status::skipped);
  CHECK(rows[""].reason == "batch: 1 does not divide by 8");
  CHECK(rows[""].model == "70b");

  asked.selection.filters = {never};
  CHECK(collect::collect_rows(asked).rows.size() == 1);
}

TEST_CASE("a user's catalogue names unknown devices, and wins over log and built-in one") {
  const test::TemporaryFolder folder;
  test::SampleRun run = test::sample_7b();
  test::write_sample(folder.path(), run);
  run.point.microbatch_size = 3;
  run.device = "NVIDIA Z900";
  run.gpu.reset();
  run.peak_tflops.reset();
  test::write_sample(folder.path(), run);
  collect::Request asked = request();
  asked.folders = {folder.path()};
  write_file_atomically(folder / "gpus.yaml",
                        "tessera_gpus: 1\n"
                        "z900: {match: [\"^NVIDIA Z900$\"], memory_gib: 100, peak_tflops: "
                        "{amp_bf16: 1000}, source: data sheet}\n"
                        "h100_80gb: {match: [\"^NVIDIA H100 80GB HBM3$\"], memory_gib: 79.6, "
                        "peak_tflops: {amp_bf16: 500}, source: own}\n");
  asked.catalogues.user = hardware::parse_catalogue(read_yaml((folder / "gpus.yaml").string()));
  const auto rows = collect::collect_rows(asked).rows;
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].gpu == "z900");
  CHECK(rows[0].peak_tflops == 1000);
  CHECK(rows[0].peak_source == "catalogue: data sheet");
  CHECK(rows[1].peak_tflops == 500);
  CHECK(*rows[1].mfu_pct / *rows[0].mfu_pct == doctest::Approx(2));
}

TEST_CASE("sealed values that no run can have are no figures and no crash") {
  const test::TemporaryFolder folder;
  test::SampleRun run = test::sample_7b();
  test::LogText log = test::sample_log_start(run);
  log.add(runlog::Kind::model, {{"d_model", 9007199254740993}, {"n_layers", -3}});
  log.add(runlog::Kind::effective, {{"gpus", 0}, {"seq_len", 9223372036854775807}});
  test::add_steps(log, 0, 6, 1e-300, 9223372036854775807 / 8);
  test::write_sample(folder.path(), run, log.text());
  collect::Request asked = request();
  asked.folders = {folder.path()};
  const auto rows = collect::collect_rows(asked).rows;
  REQUIRE(rows.size() == 1);
  CHECK_FALSE(rows[0].mfu_pct.has_value());
  CHECK_FALSE(rows[0].no_mfu.empty());
}
