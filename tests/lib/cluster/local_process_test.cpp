#include "lib/cluster/local_process.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/cluster/local_queue.h"
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

TEST_CASE("the queue keeps to its parallelism, in order, and tells how each ended") {
  const test::TemporaryFolder folder;
  const auto good = program(folder, "good", "sleep 0.1");
  const auto bad = program(folder, "bad", "exit 13");
  LocalQueue queue;
  queue.max_parallel = 2;
  for (int i = 0; i < 6; ++i) {
    LocalStart start = start_of(folder, i == 3 ? bad : good);
    start.run_dir = folder / ("run" + std::to_string(i));
    queue.to_start.push_back({.run = "run" + std::to_string(i), .attempt = 1, .start = start});
  }
  std::vector<std::string> intents;
  std::map<std::string, Outcome> outcomes;
  std::size_t most = 0;
  std::atomic<bool> interrupted{false};
  const QueueProgress progress = run_local(
      queue,
      {.intent = [&](const LocalRun& run) { intents.push_back(run.run); },
       .accepted = [&](const LocalRun&, const ProcessRef&) {},
       .ended = [&](const std::string& run, int,
                    const Outcome& outcome) { outcomes[run] = outcome; },
       .progress = [&](const QueueProgress& p) { most = std::max(most, p.running.size()); }},
      interrupted);
  CHECK(intents == std::vector<std::string>{"run0", "run1", "run2", "run3", "run4", "run5"});
  CHECK(most == 2);
  CHECK(progress.failed == 6);  // success without a log is none
  CHECK(outcomes["run0"] == Outcome{runlog::Status::start_fail, "ended without a log"});
  CHECK(outcomes["run3"] == Outcome{runlog::Status::host_oom, "out of host memory"});
}

TEST_CASE("a run is told what may run beside it, not what ended before it") {
  const test::TemporaryFolder folder;
  const auto trainer = program(folder, "trainer", "sleep 0.1");
  const auto companies = [&](int max_parallel, int runs, bool with_living) {
    LocalQueue queue;
    queue.max_parallel = max_parallel;
    static int folders = 0;
    const auto start_in_new_folder = [&] {
      LocalStart start = start_of(folder, trainer);
      start.run_dir = folder / ("company" + std::to_string(++folders));
      return start;
    };
    pid_t living = 0;
    if (with_living) {
      const LocalStart start = start_in_new_folder();
      const ProcessRef process = start_local(start, [](const ProcessRef&) {});
      living = process.pid;
      queue.living.push_back(
          {.run = "living", .attempt = 1, .run_dir = start.run_dir, .process = process});
    }
    for (int i = 0; i < runs; ++i)
      queue.to_start.push_back({.run = std::to_string(i), .start = start_in_new_folder()});
    std::vector<std::pair<int, int>> seen;  // running, shared_with
    const std::atomic<bool> interrupted{false};
    run_local(queue,
              {.prepare =
                   [&](LocalRun&, const Company& company) {
                     seen.emplace_back(company.running, company.shared_with);
                   },
               .intent = [](const LocalRun&) {},
               .accepted = [](const LocalRun&, const ProcessRef&) {},
               .ended = [](const std::string&, int, const Outcome&) {},
               .progress = [](const QueueProgress&) {}},
              interrupted);
    if (living != 0) ::waitpid(living, nullptr, 0);
    return seen;
  };
  using Seen = std::vector<std::pair<int, int>>;
  CHECK(companies(1, 2, false) == Seen{{0, 0}, {0, 0}});
  CHECK(companies(1, 1, true) == Seen{{0, 0}});   // waits for the adopted one, then is alone
  CHECK(companies(2, 1, false) == Seen{{0, 0}});  // nobody is left to run beside it
  CHECK(companies(2, 1, true) == Seen{{1, 1}});
  CHECK(companies(3, 2, false) == Seen{{0, 1}, {1, 1}});
}

TEST_CASE("a run that was prepared during an interrupt is not started") {
  const test::TemporaryFolder folder;
  const auto trainer = program(folder, "trainer", "echo ran");
  LocalQueue queue;
  queue.to_start.push_back({.run = "run", .start = start_of(folder, trainer)});
  std::atomic<bool> interrupted{false};
  int intents = 0;
  run_local(queue,
            {.prepare = [&](LocalRun&, const Company&) { interrupted = true; },
             .intent = [&](const LocalRun&) { ++intents; },
             .accepted = [](const LocalRun&, const ProcessRef&) {},
             .ended = [](const std::string&, int, const Outcome&) {},
             .progress = [](const QueueProgress&) {}},
            interrupted);
  CHECK(intents == 0);
  CHECK_FALSE(std::filesystem::exists(folder / "run"));
}

TEST_CASE("an interrupt tells the running ones to end and starts no more") {
  const test::TemporaryFolder folder;
  const auto trainer =
      program(folder, "trainer", "trap 'echo told; exit 0' TERM; while :; do sleep 0.02; done");
  LocalQueue queue;
  for (int i = 0; i < 3; ++i) {
    LocalStart start = start_of(folder, trainer);
    start.run_dir = folder / ("run" + std::to_string(i));
    queue.to_start.push_back({.run = "run" + std::to_string(i), .attempt = 1, .start = start});
  }
  std::atomic<bool> interrupted{false};
  int started = 0;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    interrupted = true;
  });
  run_local(queue,
            {.intent = [&](const LocalRun&) { ++started; },
             .accepted = [](const LocalRun&, const ProcessRef&) {},
             .ended = [](const std::string&, int, const Outcome&) {},
             .progress = [](const QueueProgress&) {}},
            interrupted);
  later.join();
  CHECK(started == 1);
  CHECK(content(folder / "run0/out.1.0.0").ends_with("told\n"));
  CHECK_FALSE(std::filesystem::exists(folder / "run1"));
}

TEST_CASE("an error of the ledger stops the queue and waits for what runs") {
  const test::TemporaryFolder folder;
  const auto trainer = program(folder, "trainer", "sleep 0.2; echo ran");
  LocalQueue queue;
  queue.max_parallel = 2;
  for (int i = 0; i < 3; ++i) {
    LocalStart start = start_of(folder, trainer);
    start.run_dir = folder / ("run" + std::to_string(i));
    queue.to_start.push_back({.run = "run" + std::to_string(i), .attempt = 1, .start = start});
  }
  int intents = 0;
  int ended = 0;
  std::atomic<bool> interrupted{false};
  CHECK_THROWS_AS(run_local(queue,
                            {.intent =
                                 [&](const LocalRun&) {
                                   if (++intents == 2) throw Error(ExitCode::io, "ledger", "full");
                                 },
                             .accepted = [](const LocalRun&, const ProcessRef&) {},
                             .ended = [&](const std::string&, int, const Outcome&) { ++ended; },
                             .progress = [](const QueueProgress&) {}},
                            interrupted),
                  Error);
  CHECK(ended == 1);
  CHECK(content(folder / "run0/out.1.0.0") == "ran\n");
  CHECK_FALSE(std::filesystem::exists(folder / "run1"));
}
