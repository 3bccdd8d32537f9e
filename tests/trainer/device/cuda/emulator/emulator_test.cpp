// SPDX-License-Identifier: Apache-2.0
// The emulator finds planted bugs and accepts correct kernels. Each kernel runs in its own process,
// because most bugs end it.
#include "trainer/device/cuda/emulator/emulator.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/trainer/device/cuda/emulator/planted.h"

using namespace tessera::trainer;
using namespace tessera::trainer::test;
using cuda::emulator::Order;

namespace {

std::vector<float> numbers() {
  std::vector<float> x(kPlantedFloats);
  std::iota(x.begin(), x.end(), 0.0F);
  return x;
}

std::vector<float> run(std::string_view name, Order order) {
  cuda::emulator::options().order = order;
  std::vector<float> x = numbers();
  planted(name).run(x.data());
  cuda::emulator::options().order = Order::forward;
  return x;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct End {
  int status;  // of waitpid
  std::string errors;
};

// Runs the kernel in a child process.
End end_of(std::string_view name) {
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // doctest's handler would report it as its own
    ::dup2(pipe[1], STDERR_FILENO);
    run(name, Order::forward);
    ::_exit(0);
  }
  ::close(pipe[1]);
  End end{0, {}};
  char some[4096];
  for (ssize_t got = 0; (got = ::read(pipe[0], some, sizeof(some))) > 0;)
    end.errors.append(some, static_cast<std::size_t>(got));
  ::close(pipe[0]);
  REQUIRE(::waitpid(child, &end.status, 0) == child);
  return end;
}

void check_ends_with(std::string_view name, std::string_view message) {
  CAPTURE(name);
  const End end = end_of(name);
  CHECK(WIFSIGNALED(end.status));
  CHECK(WTERMSIG(end.status) == SIGABRT);
  CHECK_MESSAGE(end.errors.find(message) != std::string::npos, end.errors);
  // The message is one line and names the kernel.
  CHECK(end.errors.starts_with("emulator: planted: "));
  CHECK(end.errors.find('\n') == end.errors.size() - 1);
}

}  // namespace

TEST_CASE("kernels that are right give the same in every order of threads") {
  for (const Order order : {Order::forward, Order::reversed, Order::random}) {
    const std::vector<float> x = numbers();
    const std::vector<float> rotated = run("rotated", order);
    const std::vector<float> by_warps = run("by warps", order);
    for (std::size_t i = 0; i < x.size(); ++i) {
      CHECK(rotated[i] == x[(i + 37) % x.size()]);
      // Warp w adds the numbers of warp 7 - w. Warp 1 is special: its lanes hold their sum.
      const std::size_t warp = i / 32;
      const float other = 32.0F * 32.0F * static_cast<float>(7 - warp) + 31 * 16;
      CHECK(by_warps[i] == (warp > 3 ? x[i] : x[i] + other));
    }
    for (const float value : run("summed", order)) CHECK(value == 127.5F);
  }
}

TEST_CASE("a missing sync() makes the result depend on the order of threads") {
  const std::vector<float> forward = run("unsynced read", Order::forward);
  CHECK_FALSE(same_bits(forward, run("unsynced read", Order::reversed)));
  CHECK_FALSE(same_bits(forward, run("unsynced read", Order::random)));
}

TEST_CASE("a missing fence and two writes to an address depend on the order, too") {
  for (const char* name : {"shuffle as fence", "same address"}) {
    CAPTURE(name);
    const std::vector<float> forward = run(name, Order::forward);
    const bool differs = !same_bits(forward, run(name, Order::reversed));
    // Lanes of a shuffle wait for each other, so no order of threads shows the missing fence.
    CHECK(differs == (std::string_view(name) == "same address"));
  }
}

TEST_CASE("shared memory that nobody wrote is NaN") {
  const std::vector<float> x = run("unwritten shared", Order::forward);
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::isnan(x[i]) == (i == 5));
}

TEST_CASE("copies to shared memory are there when they have been waited for, and not before") {
  const std::vector<float> x = numbers();
  const std::size_t half = x.size() / 2;
  const std::vector<float> all = run("copied", Order::random);
  const std::vector<float> part = run("copied in part", Order::random);
  const std::vector<float> none = run("copied without waiting", Order::random);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float mirrored = x[x.size() - 1 - i];
    CHECK(all[i] == mirrored);
    // The copies of the second half, which the first half reads, were still in flight.
    CHECK(std::isnan(part[i]) == (i < half));
    if (i >= half) CHECK(part[i] == mirrored);
    CHECK(std::isnan(none[i]));
  }
  const std::vector<float> forward = run("unsynced copy", Order::forward);
  CHECK_FALSE(same_bits(forward, run("unsynced copy", Order::reversed)));
}

TEST_CASE("copies that nobody waits for, too many and misplaced ones end the program") {
  check_ends_with("open group", "a thread ends before its copies at ");
  check_ends_with("copies at end", "thread 7)");
  check_ends_with("misaligned copy", "a 16-byte access to 0x");
  check_ends_with("many copies", "more than 64 copies of a thread on their way");
}

TEST_CASE("a sync() that not all threads come to ends the program") {
  check_ends_with("two syncs", "one thread is at the sync() at ");
  check_ends_with("two syncs", "planted.cpp:");
  check_ends_with("thread without sync",
                  "255 threads wait at a sync(), 0 at a shuffle, 1 have ended");
}

TEST_CASE("a shuffle that not all lanes come to, or not alike, ends the program") {
  check_ends_with("two shuffles", "lanes of a warp are at different shuffles");
  check_ends_with("two partners", "lanes of a warp are at different shuffles");
  check_ends_with("lane without shuffle",
                  "0 threads wait at a sync(), 31 at a shuffle, 225 have ended");
  check_ends_with("shuffle beyond warp", "shuffle_xor by 32");
}

TEST_CASE("an access by 16 bytes between multiples of them ends the program") {
  check_ends_with("misaligned load", "a 16-byte access to 0x");
  check_ends_with("misaligned load", "thread 9)");
  check_ends_with("misaligned store", "thread 3)");
}

TEST_CASE("an instruction for one address space on an address of another ends the program") {
  check_ends_with("global store to shared", "an access to global memory, but 0x");
  check_ends_with("copy to global", "which is no shared memory");
  check_ends_with("copy to global", "thread 4)");
  check_ends_with("copy from shared", "is shared memory at ");
  check_ends_with("copy out of bounds", "which is no shared memory");
}

TEST_CASE("a launch that no GPU takes ends the program") {
  check_ends_with("too much shared", "65536 bytes of shared memory");
  check_ends_with("too much shared by launch", "49168 bytes of shared memory, 49152 are there");
  check_ends_with("too much shared together", "32 bytes of shared memory, 0 are there");
  check_ends_with("too much shared for any", "no GPU has more than 233472");
  CHECK(run("much shared", Order::forward) == numbers());
  check_ends_with("block of 48", "blocks of 48 threads");
  check_ends_with("block of 1056", "blocks of 1056 threads");
  check_ends_with("empty grid", "a grid of 0 x 1 blocks");
  check_ends_with("grid too high", "a grid of 1 x 65536 blocks");
}

#if defined(__SANITIZE_ADDRESS__)
TEST_CASE("the address sanitizer finds an access beyond shared memory") {
  const End end = end_of("shared out of bounds");
  CHECK(WIFEXITED(end.status));
  CHECK(WEXITSTATUS(end.status) != 0);
  // The undefined-behaviour sanitizer, if it is there too, reports first.
  const bool found = end.errors.find("heap-buffer-overflow") != std::string::npos ||
                     end.errors.find("out of bounds for type") != std::string::npos;
  CHECK_MESSAGE(found, end.errors);
}
#endif
