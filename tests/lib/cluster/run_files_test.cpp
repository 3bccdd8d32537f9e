// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/run_files.h"

#include <doctest/doctest.h>

#include <fstream>

#include "lib/cluster/outcome.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::cluster;

namespace {

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("an attempt's outputs come in the order in which they are to be read") {
  const test::TemporaryFolder folder;
  CHECK(output_files(folder.path(), 1).empty());
  CHECK(output_files(folder / "missing", 1).empty());
  for (const char* name : {"out.1.0.10", "out.1.0.2", "out.1.1.0", "out.1.0.0", "script.1.out",
                           "script.2.out", "out.11.0.0", "out.2.0.0", "out.1.0.x", "out.1.0"})
    write(folder / name, "");
  std::vector<std::string> names;
  for (const auto& path : output_files(folder.path(), 1)) names.push_back(path.filename());
  CHECK(names == std::vector<std::string>{"script.1.out", "out.1.0.0", "out.1.0.2", "out.1.0.10",
                                          "out.1.1.0"});
}

TEST_CASE("the exit code that a script noted last counts") {
  const test::TemporaryFolder folder;
  CHECK_FALSE(noted_exit_code(folder.path(), 1).has_value());
  CHECK_FALSE(noted_exit_code(folder / "missing", 1).has_value());
  write(folder / "exit.1.0", "12\n");
  write(folder / "exit.10.0", "1\n");
  CHECK(noted_exit_code(folder.path(), 1) == 12);
  write(folder / "exit.1.2", "137\n");
  write(folder / "exit.1.1", "0\n");
  CHECK(noted_exit_code(folder.path(), 1) == 137);
  write(folder / "exit.3.0", "nothing of sense\n");
  CHECK_FALSE(noted_exit_code(folder.path(), 3).has_value());
}

TEST_CASE("what was noted of a run outranks the exit code of its whole job") {
  const test::TemporaryFolder folder;
  write(folder / "exit.1.0", "12\n");
  CHECK(outcome_of_attempt(folder.path(), 1, {.exit_code = 9}).status == runlog::Status::oom);
  CHECK(outcome_of_attempt(folder.path(), 1, {}).status == runlog::Status::oom);
  CHECK(outcome_of_attempt(folder.path(), 2, {.exit_code = 13}).status == runlog::Status::host_oom);
}
