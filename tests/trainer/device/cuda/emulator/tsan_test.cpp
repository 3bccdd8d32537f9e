// SPDX-License-Identifier: Apache-2.0
// The thread sanitizer, in its own program, finds planted races and none in the kernels.
#include <doctest/doctest.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace {

constexpr int kRaceFound = 66;  // exit code of the sanitizer

struct End {
  int exit_code;
  std::string output;
};

End end_of(const char* first, const char* second = nullptr) {
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // gcc's sanitizer does not start if the kernel randomises addresses over a wider range than it
    // knows. Where the call is not allowed, it may be unnecessary.
    ::personality(ADDR_NO_RANDOMIZE);
    ::setenv("TSAN_OPTIONS", "exitcode=66", 1);
    ::dup2(pipe[1], STDOUT_FILENO);
    ::dup2(pipe[1], STDERR_FILENO);
    ::execl(TESSERA_KERNELS_TSAN, TESSERA_KERNELS_TSAN, first, second, nullptr);
    ::_exit(127);
  }
  ::close(pipe[1]);
  End end{0, {}};
  char some[4096];
  for (ssize_t got = 0; (got = ::read(pipe[0], some, sizeof(some))) > 0;)
    end.output.append(some, static_cast<std::size_t>(got));
  ::close(pipe[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return end;
}

}  // namespace

TEST_CASE("the thread sanitizer finds planted races") {
  for (const char* name : {"unsynced read", "shuffle as fence", "same address", "unsynced copy"}) {
    CAPTURE(name);
    const End end = end_of("planted", name);
    CHECK_MESSAGE(end.exit_code == kRaceFound, end.output);
    CHECK(end.output.find("data race") != std::string::npos);
    CHECK(end.output.find("planted.cpp") != std::string::npos);
  }
}

TEST_CASE("the thread sanitizer finds no race in kernels that are right") {
  for (const char* name : {"rotated", "summed", "by warps", "copied"}) {
    CAPTURE(name);
    const End end = end_of("planted", name);
    CHECK_MESSAGE(end.exit_code == 0, end.output);
    CHECK(end.output.empty());
  }
}

TEST_CASE("the thread sanitizer finds no race in our own kernels") {
  const End end = end_of("cases");
  CHECK_MESSAGE(end.exit_code == 0, end.output);
  CHECK(end.output.find("ThreadSanitizer") == std::string::npos);
}
