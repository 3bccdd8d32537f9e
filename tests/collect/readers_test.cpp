// SPDX-License-Identifier: Apache-2.0
// Whose log a file is, and runs whose folder or file has any name.
#include "collect/readers/readers.h"

#include <doctest/doctest.h>

#include <set>

#include "collect/collection.h"
#include "collect/columns.h"
#include "lib/ledger/ledger.h"
#include "tests/collect/sample_run.h"
#include "tests/temporary.h"

using namespace tessera;
using runlog::Status;

namespace {

collect::Request in_project(const std::filesystem::path& workspace) {
  collect::Request asked;
  asked.catalogues.built_in = hardware::built_in_catalogue();
  asked.projects = {{.workspace = workspace, .name = "tput"}};
  return asked;
}

collect::Request below(const std::filesystem::path& folder) {
  collect::Request asked;
  asked.catalogues.built_in = hardware::built_in_catalogue();
  asked.folders = {folder};
  return asked;
}

std::string cell_text(const collect::Row& row, const std::string& name) {
  for (const collect::Column& column : collect::columns()) {
    if (column.name == name) return collect::exact_text(column.value(row));
  }
  FAIL("no column " << name);
  return {};
}

}  // namespace

TEST_CASE("a reader has an engine and a name of its own") {
  std::set<std::string_view> names;
  for (const collect::Reader* reader : collect::readers()) {
    CHECK_FALSE(reader->engine.empty());
    CHECK(reader->name.starts_with(reader->engine));
    CHECK(names.insert(reader->name).second);
  }
  CHECK(names.contains("tessera 1"));
}

TEST_CASE("a log is recognised by its first lines, whatever its file is called") {
  const test::TemporaryFolder folder;
  const auto engine_of = [&](const std::string& content) -> std::string_view {
    write_file_atomically(folder / "any name", content);
    const collect::Reader* reader = collect::reader_of(folder / "any name");
    return reader != nullptr ? reader->engine : "";
  };
  const std::string log = test::sample_log(test::sample_7b());
  CHECK(engine_of(log) == "tessera");
  CHECK(engine_of("+ srun trainer\nstarting\n" + log) == "tessera");
  CHECK(engine_of(log.substr(0, 200)) == "tessera");  // cut in its first record
  CHECK(engine_of("{\"tessera\":2,\"t\":\"header\"}\n") == "tessera");
  CHECK(engine_of("").empty());
  CHECK(engine_of("it wrote " + log.substr(0, log.find('\n') + 1)).empty());
  CHECK(engine_of("{\"tessera_run\":1,\"id\":\"1f0c9a3b77de\"}\n").empty());
  CHECK(engine_of(std::string(collect::kHeadBytes, '\n') + log).empty());
  CHECK(collect::reader_of(folder / "not there") == nullptr);
}

TEST_CASE("a run folder that was renamed to any name is its project's run still") {
  const test::TemporaryFolder folder;
  const test::SampleRun ran = test::sample_7b();
  const auto run_folder = test::write_sample(folder.path(), ran);
  ledger::Ledger book(folder / "tput", "kim", "login");
  book.append({.op = ledger::Op::plan,
               .cluster = "hgx",
               .points = {{.id = test::id_of(ran), .run = test::name_of(ran), .label = "7b"}}});
  const collect::Row before = collect::collect_rows(in_project(folder.path())).rows.at(0);
  std::filesystem::rename(run_folder, folder / "tput/best so far");
  const auto after = collect::collect_rows(in_project(folder.path()));
  REQUIRE(after.rows.size() == 1);
  CHECK(after.rows[0].status == Status::ok);
  CHECK(after.rows[0].run == before.run);
  CHECK(after.rows[0].mfu_pct == before.mfu_pct);
  CHECK(after.notes.lines().empty());
}

TEST_CASE("what a folder of another name holds is taken once, and by its own project") {
  const test::TemporaryFolder folder;
  const auto run_folder = test::write_sample(folder.path(), test::sample_7b());
  std::filesystem::copy(run_folder, folder / "tput/a copy");
  const auto theirs = test::write_sample(folder.path(), test::sample_7b("other"));
  std::filesystem::rename(theirs, folder / "tput/theirs");
  std::filesystem::create_directory(folder / "tput/.hidden");
  write_file_atomically(folder / "tput/.hidden/log", test::sample_log(test::sample_7b("tput")));
  const auto collection = collect::collect_rows(in_project(folder.path()));
  REQUIRE(collection.rows.size() == 1);
  CHECK(collection.rows[0].attempts == 1);
  CHECK(collection.notes.lines() ==
        std::vector<std::string>{(folder / "tput/a copy").string() + ": holds " +
                                 test::name_of(test::sample_7b()) +
                                 ", which is there already; left out"});
}

TEST_CASE("a log in a file of any name is a row of the folder that it is found below") {
  const test::TemporaryFolder folder;
  make_directories(folder / "runs/monday");
  test::SampleRun other = test::sample_7b();
  other.point.microbatch_size = 3;
  write_file_atomically(folder / "runs/monday/train.out",
                        "+ srun trainer\n" + test::sample_log(test::sample_7b()));
  write_file_atomically(folder / "runs/monday/README", "Runs of Monday.\n");
  write_file_atomically(folder / "runs/second.txt", test::sample_log(other));
  std::filesystem::create_symlink("second.txt", folder / "runs/link.txt");
  const auto collection = collect::collect_rows(below(folder / "runs"));
  REQUIRE(collection.rows.size() == 2);
  for (const collect::Row& row : collection.rows) {
    CHECK(row.status == Status::ok);
    CHECK(row.attempts == 1);
    CHECK(cell_text(row, "engine") == "tessera");
    CHECK(cell_text(row, "reader") == "tessera 1");
  }
  CHECK(collection.notes.lines().empty());
  // Beside files of a run, captured output is no second run.
  const auto run_folder = test::write_sample(folder.path(), test::sample_7b());
  write_file_atomically(run_folder / "out.1.0.0", test::sample_log(other));
  CHECK(collect::collect_rows(below(run_folder)).rows.size() == 1);
}

TEST_CASE("a row without a log has no engine and no reader") {
  const test::TemporaryFolder folder;
  ledger::Ledger book(folder / "tput", "kim", "login");
  book.append({.op = ledger::Op::plan,
               .cluster = "hgx",
               .points = {{.id = "1f0c9a3b77de", .run = "tput--7b-1f0c9a3b77de", .label = "7b"}}});
  const auto rows = collect::collect_rows(in_project(folder.path())).rows;
  REQUIRE(rows.size() == 1);
  CHECK(cell_text(rows[0], "engine").empty());
  CHECK(cell_text(rows[0], "reader").empty());
}
