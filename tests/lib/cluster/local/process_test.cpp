// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/local/process.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::cluster;

namespace {

// A program in the trainer's place: what is tested here is who runs when, and what is left behind.
std::filesystem::path program(const test::TemporaryFolder& folder, const std::string& name,
                              const std::string& body) {
  const auto path = folder / name;
  write_file_atomically(path, "#!/bin/sh\n" + body + "\n");
  ::chmod(path.c_str(), 0755);
  return path;
}

LocalStart start_of(const test::TemporaryFolder& folder, const std::filesystem::path& trainer,
                    int attempt = 1) {
  return {.trainer = trainer,
          .run_dir = folder / "run",
          .attempt = attempt,
          .spec_json = "{}",
          .user = "kim",
          .env = {{"TESSERA_TEST_AXIS", "LL128"}}};
}

bool wait_until(const std::function<bool()>& condition) {
  for (int i = 0; i < 500; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

std::string content(const std::filesystem::path& path) {
  return read_file_if_exists(path).value_or("");
}

}  // namespace

TEST_CASE("a started run has its specification, its pid file, its environment and its output") {
  const test::TemporaryFolder folder;
  const auto trainer = program(folder, "trainer", R"(echo "$1 $2 $TESSERA_TEST_AXIS"; exit 14)");
  bool told = false;
  const ProcessRef process = start_local(start_of(folder, trainer), [&](const ProcessRef& started) {
    told = true;
    CHECK(liveness(started) == Liveness::alive);
    CHECK(local_process(folder / "run", 1) == started);
    CHECK(content(folder / "run/out.1.0.0").empty());  // it waits until this returns
  });
  CHECK(told);
  int status = 0;
  CHECK(::waitpid(process.pid, &status, 0) == process.pid);
  CHECK(WEXITSTATUS(status) == 14);
  CHECK(content(folder / "run/out.1.0.0") ==
        "--spec " + (folder / "run/run.1.json").string() + " LL128\n");
  CHECK(content(folder / "run/run.1.json") == "{}\n");
  CHECK(liveness(process) == Liveness::dead);
  CHECK_FALSE(signal_local(process, SIGTERM));
}

TEST_CASE("several ranks are started as trainer --nproc N") {
  const test::TemporaryFolder folder;
  const auto trainer = program(folder, "trainer", R"(echo "$@")");
  LocalStart start = start_of(folder, trainer);
  start.ranks = 3;
  const ProcessRef process = start_local(start, [](const ProcessRef&) {});
  ::waitpid(process.pid, nullptr, 0);
  CHECK(content(folder / "run/out.1.0.0") ==
        "--nproc 3 --spec " + (folder / "run/run.1.json").string() + "\n");
}

TEST_CASE("a variable that is to be unset does not come from the submitter") {
  const test::TemporaryFolder folder;
  const auto trainer = program(folder, "trainer", R"(echo "${TESSERA_A-none} ${TESSERA_B-none}")");
  ::setenv("TESSERA_A", "1", 1);
  ::setenv("TESSERA_B", "2", 1);
  LocalStart start = start_of(folder, trainer);
  start.unset = {"TESSERA_A"};
  const ProcessRef process = start_local(start, [](const ProcessRef&) {});
  ::unsetenv("TESSERA_A");
  ::unsetenv("TESSERA_B");
  ::waitpid(process.pid, nullptr, 0);
  CHECK(content(folder / "run/out.1.0.0") == "none 2\n");
}

TEST_CASE("an attempt is never overwritten, a missing trainer is named") {
  const test::TemporaryFolder folder;
  const auto trainer = program(folder, "trainer", "exit 0");
  const auto nothing = [](const ProcessRef&) {};
  const ProcessRef process = start_local(start_of(folder, trainer), nothing);
  ::waitpid(process.pid, nullptr, 0);
  CHECK_THROWS_AS(start_local(start_of(folder, trainer), nothing), Error);
  try {
    start_local(start_of(folder, folder / "none", 2), nothing);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::refused);
    CHECK(error.where() == (folder / "none").string());
  }
}

TEST_CASE("a run that could not be recorded does not begin") {
  const test::TemporaryFolder folder;
  const auto trainer = program(folder, "trainer", "echo ran");
  CHECK_THROWS_AS(
      start_local(start_of(folder, trainer),
                  [](const ProcessRef&) { throw Error(ExitCode::io, "ledger", "full"); }),
      Error);
  CHECK(content(folder / "run/out.1.0.0").empty());
}

TEST_CASE("a submitter that dies before it has recorded a run leaves nothing running") {
  const test::TemporaryFolder folder;
  const auto trainer = program(folder, "trainer", "echo ran");
  const pid_t submitter = ::fork();
  if (submitter == 0) {
    start_local(start_of(folder, trainer), [](const ProcessRef&) { ::kill(::getpid(), SIGKILL); });
    ::_exit(0);
  }
  ::waitpid(submitter, nullptr, 0);
  const auto process = local_process(folder / "run", 1);
  REQUIRE(process.has_value());
  CHECK(wait_until([&] { return liveness(*process) == Liveness::dead; }));
  CHECK(content(folder / "run/out.1.0.0").empty());
}

TEST_CASE("a run survives its submitter") {
  const test::TemporaryFolder folder;
  const auto trainer = program(folder, "trainer", "sleep 0.3; echo ran");
  const pid_t submitter = ::fork();
  if (submitter == 0) {
    start_local(start_of(folder, trainer), [](const ProcessRef&) {});
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(submitter, nullptr, 0);
  CHECK(wait_until([&] { return content(folder / "run/out.1.0.0") == "ran\n"; }));
}
