// SPDX-License-Identifier: Apache-2.0
#include "lib/base/command.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "lib/base/clock.h"
#include "lib/base/file.h"
#include "lib/base/numbers.h"
#include "tests/temporary.h"

using namespace tessera;

TEST_CASE("a command's output, errors and exit code") {
  const CommandResult result = run_command({"sh", "-c", "echo out; echo err >&2; exit 7"});
  CHECK(result.out == "out\n");
  CHECK(result.err == "err\n");
  CHECK(result.exit_code == 7);
  CHECK_FALSE(result.timed_out);
  CHECK(run_command({"sh", "-c", "kill -9 $$"}).exit_code == 128 + SIGKILL);
  CHECK(run_command({"sh", "-c", "cat; echo end"}).out == "end\n");
}

TEST_CASE("a command that cannot be started is exit code 127") {
  CHECK(run_command({"/no/such/program"}).exit_code == 127);
  CHECK(run_command({"no-such-program"}).exit_code == 127);
  CHECK(run_command({"/etc/passwd"}).exit_code == 127);
}

TEST_CASE("a command has the environment that it is given, and is looked up in ours") {
  const CommandResult result =
      run_command({"env"}, {.environment = std::vector<std::string>{"A=1 2", "B="}});
  CHECK(result.out == "A=1 2\nB=\n");
}

TEST_CASE("a command reads its input, more than a pipe holds, or leaves it") {
  const std::string text(1 << 20, 'x');
  CHECK(run_command({"cat"}, {.input = text}).out == text);
  CHECK(run_command({"true"}, {.input = text}).exit_code == 0);
}

TEST_CASE("a command is killed at its time limit with all that it started") {
  const test::TemporaryFolder folder;
  const double begin_s = monotonic_seconds();
  // The inner one holds the pipe open.
  const CommandResult result = run_command(
      {"sh", "-c", "echo before; sleep 60 & echo $! >\"$0\"; wait", (folder / "pid").string()},
      {.limit_s = 0.3});
  CHECK(monotonic_seconds() - begin_s < 20);
  CHECK(result.timed_out);
  CHECK(result.out == "before\n");
  CHECK(result.exit_code == 128 + SIGKILL);
  const std::string text = read_file(folder / "pid");
  const auto pid = parse_integer(text.substr(0, text.find('\n')));
  REQUIRE(pid.has_value());
  bool is_gone = false;
  for (int tries = 0; tries < 100 && !is_gone; ++tries) {
    // A zombie until init has taken it.
    const auto stat = read_file_if_exists("/proc/" + std::to_string(*pid) + "/stat");
    is_gone = !stat || stat->find(") Z ") != std::string::npos;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  CHECK(is_gone);
  CHECK(run_command({"sh", "-c", "echo fast"}, {.limit_s = 60}).out == "fast\n");
}

TEST_CASE("a command dies with its caller where that is asked") {
  const test::TemporaryFolder folder;
  const pid_t caller = ::fork();
  if (caller == 0) {
    run_command({"sh", "-c", "echo $$ >\"$0\"; exec sleep 60", (folder / "pid").string()},
                {.dies_with_caller = true});
    ::_exit(0);
  }
  std::string text;
  for (int tries = 0; tries < 500 && !text.ends_with('\n'); ++tries) {
    text = read_file_if_exists(folder / "pid").value_or("");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ::kill(caller, SIGKILL);
  ::waitpid(caller, nullptr, 0);
  REQUIRE(text.ends_with('\n'));
  const std::string stat_file = "/proc/" + text.substr(0, text.find('\n')) + "/stat";
  bool is_gone = false;
  for (int tries = 0; tries < 500 && !is_gone; ++tries) {
    const auto stat = read_file_if_exists(stat_file);
    is_gone = !stat || stat->find(") Z ") != std::string::npos;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  CHECK(is_gone);
}
