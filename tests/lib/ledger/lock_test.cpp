// SPDX-License-Identifier: Apache-2.0
#include "lib/ledger/lock.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/process.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::ledger;

namespace {

void hold(const test::TemporaryFolder& folder, const ProcessRef& holder) {
  make_directories(folder / ".tessera");
  write_file_atomically(folder / ".tessera/lock", process_json(holder, "kim"));
}

}  // namespace

TEST_CASE("a second submit is told who holds the lock, and gets it afterwards") {
  const test::TemporaryFolder folder;
  {
    const ProjectLock lock(folder.path(), "kim");
    try {
      const ProjectLock second(folder.path(), "lee");
      FAIL("two locks");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::locked);
      CHECK(std::string(error.what()).find("kim on " + host_name()) != std::string::npos);
    }
  }
  const ProjectLock again(folder.path(), "lee");
}

TEST_CASE("who works on a project can be asked") {
  const test::TemporaryFolder folder;
  CHECK_FALSE(lock_holder(folder.path()).has_value());
  {
    const ProjectLock lock(folder.path(), "kim");
    const auto holder = lock_holder(folder.path());
    REQUIRE(holder.has_value());
    CHECK(holder->user == "kim");
    CHECK(holder->process == this_process());
  }
  CHECK_FALSE(lock_holder(folder.path()).has_value());
  ProcessRef process = this_process();
  process.start_ticks += 1;
  hold(folder, process);  // died without giving it back
  CHECK_FALSE(lock_holder(folder.path()).has_value());
  process.host = "another-host";
  hold(folder, process);
  CHECK(lock_holder(folder.path()).has_value());
}

TEST_CASE("the lock of a submit that lives here is not broken, whatever is asked") {
  const test::TemporaryFolder folder;
  const ProjectLock lock(folder.path(), "kim");
  CHECK_THROWS_WITH_AS(ProjectLock(folder.path(), "kim", true),
                       doctest::Contains("its submit lives: pid"), Error);
  CHECK(lock_holder(folder.path())->user == "kim");
}

TEST_CASE("a lock breaks by itself only if its process is known to be dead") {
  const test::TemporaryFolder folder;
  ProcessRef dead = this_process();
  dead.start_ticks += 1;  // same pid, another process
  hold(folder, dead);
  {
    const ProjectLock lock(folder.path(), "kim");
  }
  ProcessRef other_boot = this_process();
  other_boot.boot = "an earlier boot";
  hold(folder, other_boot);
  {
    const ProjectLock lock(folder.path(), "kim");
  }
  ProcessRef elsewhere = dead;
  elsewhere.host = "another-host";
  hold(folder, elsewhere);
  CHECK_THROWS_AS(ProjectLock(folder.path(), "kim"), Error);
  {
    const ProjectLock lock(folder.path(), "kim", true);
  }
  write_file_atomically(folder / ".tessera/lock", "rubbish");
  CHECK_THROWS_AS(ProjectLock(folder.path(), "kim"), Error);
}

TEST_CASE("of many that find a stale lock never two hold it at once") {
  const test::TemporaryFolder folder;
  ProcessRef dead = this_process();
  dead.start_ticks += 1;
  const std::string inside = folder / "inside";
  for (int round = 0; round < 20; ++round) {
    hold(folder, dead);
    std::vector<pid_t> children;
    for (int i = 0; i < 6; ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        int outcome = 1;
        try {
          const ProjectLock lock(folder.path(), "kim");
          const FileDescriptor alone(::open(inside.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600));
          outcome = alone ? 0 : 2;
          ::usleep(5000);
          if (alone) ::unlink(inside.c_str());
        } catch (const Error&) {
          outcome = 1;
        }
        ::_exit(outcome);
      }
      children.push_back(child);
    }
    int holders = 0;
    for (const pid_t child : children) {
      int status = 0;
      ::waitpid(child, &status, 0);
      REQUIRE(WIFEXITED(status));
      CHECK(WEXITSTATUS(status) != 2);
      if (WEXITSTATUS(status) == 0) ++holders;
    }
    CHECK(holders >= 1);
  }
}
