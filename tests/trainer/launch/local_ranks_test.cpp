// SPDX-License-Identifier: Apache-2.0
#include "trainer/launch/local_ranks.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <string>
#include <vector>

#include "lib/base/process.h"
#include "tests/trainer/launch/meeting.h"
#include "tests/trainer/launch/processes.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

std::vector<std::string> ranks(int count, const std::string& action) {
  return {launch_rank_path(), "ranks", std::to_string(count), "-", action};
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

}  // namespace

TEST_CASE("local ranks meet by the socket that rank 0 inherits; the token is in no command line") {
  Process parent(ranks(5, "secret"), {});
  const std::string out = parent.rest();
  CHECK(parent.wait() == 0);
  for (int rank = 0; rank < 5; ++rank)
    CHECK(count_of(out, "met " + std::to_string(rank) + " ") == 1);
}

TEST_CASE("one failing rank ends all, with its reason and its code") {
  for (const int failing : {0, 2}) {
    CAPTURE(failing);
    const std::string name = std::to_string(failing);
    Process parent(ranks(3, "fail-" + name + "-14"), {}, true);
    const std::string out = parent.rest();
    CHECK(parent.wait() == 14);
    CHECK(count_of(out, "lost " + name + ": on purpose\n") == 2);
    // Either of them may be noticed first.
    CHECK(count_of(out, "; the others are given time to end\n") == 1);
  }
}

TEST_CASE("a rank that is killed ends all; the code says by which signal") {
  Process parent(ranks(3, "die-1"), {}, true);
  const std::string out = parent.rest();
  CHECK(parent.wait() == 128 + SIGKILL);
  CHECK(count_of(out, "lost 1: its connection ended\n") == 2);
}

TEST_CASE(
    "ranks that neither notice nor obey are killed; the code is that of the one that failed") {
  for (const int failing : {0, 1}) {
    Process parent(ranks(3, "deaf-" + std::to_string(failing)), {}, true);
    const std::string out = parent.rest();
    CHECK(parent.wait() == 18);
    CHECK(contains(out, "trainer: rank " + std::to_string(failing) + " ended with exit code 18"));
  }
}

TEST_CASE("ranks that end before they meet end all; a program that is not there too") {
  Process parent({launch_rank_path(), "ranks", "2", "missing"}, {}, true);
  CHECK(contains(parent.rest(), "ended with exit code 18"));
  CHECK(parent.wait() == 18);
  const std::atomic<int> stop = 0;
  CHECK(run_local_ranks(2, {"/no/such/program"}, stop) == 127);
}

TEST_CASE("a signal is handed on to all ranks, once") {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    Process parent(ranks(3, "signal"), {}, true);
    for (int i = 0; i < 3; ++i) CHECK(contains(parent.line(), "met "));
    parent.signal(signal);
    const std::string out = parent.rest();
    CHECK(parent.wait() == 0);
    for (int rank = 0; rank < 3; ++rank)
      CHECK(count_of(out, "told " + std::to_string(rank) + "\n") == 1);
  }
}

TEST_CASE("ranks are groups of their own and end when the process that started them is killed") {
  Process parent(ranks(3, "signal"), {});
  std::set<pid_t> pids;
  for (int i = 0; i < 3; ++i) {
    const std::string line = parent.line();
    pids.insert(static_cast<pid_t>(std::atoi(line.substr(line.rfind(' ')).c_str())));
  }
  REQUIRE(pids.size() == 3);
  for (const pid_t pid : pids) {
    CHECK(::getpgid(pid) == pid);
    CHECK(start_ticks(pid).has_value());
  }
  parent.signal(SIGKILL);
  CHECK(parent.wait() == 128 + SIGKILL);
  // stdout ends when no process has it open any more.
  CHECK(parent.rest().empty());
  wait_until([&] {
    return std::ranges::none_of(pids, [](pid_t pid) { return start_ticks(pid).has_value(); });
  });
}
