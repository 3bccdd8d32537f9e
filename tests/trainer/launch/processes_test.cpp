// SPDX-License-Identifier: Apache-2.0
// Ranks that are real processes, and die as such.
#include "tests/trainer/launch/processes.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "tests/temporary.h"
#include "tests/trainer/launch/meeting.h"
#include "trainer/launch/open_store.h"
#include "trainer/launch/sockets.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;
using tessera::test::TemporaryFolder;

TEST_CASE("a rank that is killed is lost to rank 0 and to the others") {
  const TemporaryFolder folder;
  const std::vector<std::string> command{launch_rank_path(), folder.path().string(), "watch"};
  Process one(command, rank_variables(1, 3));
  Process two(command, rank_variables(2, 3));
  {
    const auto store = open_store(place(0, 3), {.run_dir = folder.path().string(), .limit = kLong},
                                  environment_of({}));
    CHECK(contains(two.line(), "met 2 "));
    two.signal(SIGKILL);
    CHECK(two.wait() == 128 + SIGKILL);
    const Outcome outcome = outcome_of([&] { store->get("never", kLong); });
    CHECK(outcome.code == ExitCode::comm_error);
    CHECK(outcome.message == "rank 2: its connection ended");
    CHECK(store->lost()->rank == 2);
  }
  CHECK(contains(one.line(), "met 1 "));
  CHECK(one.line() == "lost 2: its connection ended");
  CHECK(one.wait() == 15);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("a rank 0 that is killed is lost to all, and its file holds nobody up afterwards") {
  const TemporaryFolder folder;
  const std::vector<std::string> command{launch_rank_path(), folder.path().string(), "watch"};
  {
    // It is killed while it waits for the others, so the file stays behind.
    Process zero(command, rank_variables(0, 2));
    wait_for_rendezvous(folder.path().string());
    zero.signal(SIGKILL);
    zero.wait();
    CHECK_FALSE(std::filesystem::is_empty(folder.path()));
  }
  Process zero(command, rank_variables(0, 2));
  const auto store = open_store(place(1, 2), {.run_dir = folder.path().string(), .limit = kLong},
                                environment_of({}));
  CHECK(contains(zero.line(), "met 0 "));
  CHECK(std::filesystem::is_empty(folder.path()));
  zero.signal(SIGKILL);
  const Outcome outcome = outcome_of([&] { store->get("never", kLong); });
  CHECK(outcome.code == ExitCode::comm_error);
  CHECK(outcome.message == "rank 0: its connection ended");
  REQUIRE(store->lost().has_value());
  CHECK(store->lost()->rank == 0);
  CHECK(outcome_of([&] { store->set("key", "value"); }).code == ExitCode::comm_error);
}

TEST_CASE("the token is in no file when all have met, and in no command line") {
  const TemporaryFolder folder;
  Process zero({launch_rank_path(), folder.path().string(), "leave"}, rank_variables(0, 2));
  const Announced announced = wait_for_rendezvous(folder.path().string());
  const auto is_in_a_command_line = [&] {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const auto text = outcome_of([&] {
        const auto words = read_file_if_exists(entry.path() / "cmdline");
        if (words && contains(*words, announced.token)) throw std::runtime_error("found");
      });
      if (text.message == "found") return true;
    }
    return false;
  };
  CHECK_FALSE(is_in_a_command_line());
  {
    const auto store = open_store(place(1, 2), {.run_dir = folder.path().string(), .limit = kLong},
                                  environment_of({}));
    // Rank 0 removes the file when it knows that all have come.
    wait_until([&] { return std::filesystem::is_empty(folder.path()); });
    CHECK_FALSE(is_in_a_command_line());
    store->set("here.1", "");
  }
  CHECK_FALSE(contains(zero.rest(), announced.token));
  CHECK(zero.wait() == 0);
}

TEST_CASE("where rank 0 may open few files, silent connections are dropped for ranks") {
  const TemporaryFolder folder;
  // Each stranger is cut off after 10 s in any case: without dropping, the last ranks would join
  // after minutes.
  constexpr int kFiles = 40;
  Process zero({launch_rank_path(), folder.path().string(), "leave"}, rank_variables(0, 2), false,
               kFiles);
  const int port = wait_for_rendezvous(folder.path().string()).port;
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 12 * kFiles; ++i) {
    std::string trouble;
    silent.push_back(start_connecting({.host = "127.0.0.1", .port = port}, trouble));
    CHECK(trouble.empty());
  }
  {
    const auto store = open_store(place(1, 2), {.run_dir = folder.path().string(), .limit = kLong},
                                  environment_of({}));
    try {
      store->set("here.1", "");
    } catch (const Error& error) {
      FAIL(error.what() << "; rank 0 said: " << zero.rest() << "; it ended with " << zero.wait());
    }
  }
  CHECK(zero.wait() == 0);
}
