// SPDX-License-Identifier: Apache-2.0
// CPU times as the kernel writes them.
#include "trainer/run/cpu_share.h"

#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "lib/base/file.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::trainer;

namespace {

void write_task(const std::filesystem::path& folder, const char* name, const char* text) {
  std::filesystem::create_directories(folder / name);
  write_file_atomically(folder / name / "schedstat", text);
}

}  // namespace

TEST_CASE("the times of all threads are added, and their share is what ran of what wanted to") {
  const tessera::test::TemporaryFolder folder;
  write_task(folder.path(), "11", "1000000000 500000000 7\n");
  write_task(folder.path(), "12", "2000000000 0 1\n");
  const auto before = cpu_times(folder.path());
  REQUIRE(before.has_value());
  CHECK(before->ran_s == doctest::Approx(3));
  CHECK(before->waited_s == doctest::Approx(0.5));
  CHECK(before->threads == 2);
  write_task(folder.path(), "11", "3000000000 1000000000 9\n");
  write_task(folder.path(), "12", "3000000000 500000000 4\n");
  // 3 s ran, 1 s waited.
  CHECK(cpu_share(before, cpu_times(folder.path())) == doctest::Approx(0.75));
}

TEST_CASE("what the kernel does not say is not known") {
  const tessera::test::TemporaryFolder folder;
  CHECK_FALSE(cpu_times(folder / "none").has_value());
  std::filesystem::create_directories(folder / "11");
  CHECK_FALSE(cpu_times(folder.path()).has_value());
  write_task(folder.path(), "11", "no numbers");
  CHECK_FALSE(cpu_times(folder.path()).has_value());
  write_task(folder.path(), "12", "1000000000 0 7\n");
  const auto some = cpu_times(folder.path());
  CHECK(some.has_value());
  CHECK_FALSE(cpu_share(std::nullopt, some).has_value());
  CHECK_FALSE(cpu_share(some, std::nullopt).has_value());
  CHECK_FALSE(cpu_share(some, some).has_value());  // nothing ran
  // Two tenths of a second for each of two threads are enough.
  CHECK_FALSE(cpu_share(CpuTimes{0, 0, 2}, CpuTimes{0.3, 0.09, 2}).has_value());
  CHECK(cpu_share(CpuTimes{0, 0, 2}, CpuTimes{0.3, 0.1, 2}) == doctest::Approx(0.75));
}

TEST_CASE("a thread that has ended takes its waiting along: the share stays at most 1") {
  CHECK(cpu_share(CpuTimes{1, 5, 2}, CpuTimes{2, 4, 1}) == doctest::Approx(1));
}

TEST_CASE("of this process the kernel says what ran, if it says anything") {
  const auto before = cpu_times();
  if (!before) return;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(400);
  while (std::chrono::steady_clock::now() < end) {
  }
  const auto after = cpu_times();
  REQUIRE(after.has_value());
  // Threads that libraries keep did not run here.
  const auto share = cpu_share(before, CpuTimes{after->ran_s, after->waited_s, 1});
  REQUIRE(share.has_value());
  CHECK(*share > 0);
  CHECK(*share <= 1);
}
