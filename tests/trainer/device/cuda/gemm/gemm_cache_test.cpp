// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/gemm/gemm_cache.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "lib/base/crc32.h"
#include "lib/base/file.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::trainer::cuda;

namespace {

namespace fs = std::filesystem;

GemmMachine h200() {
  return {.gpu = "NVIDIA H200, 132 SMs",
          .cublaslt = "13.1.0",
          .driver = "13.0",
          .workspace_bytes = 64 << 20};
}

cublasLtMatmulAlgo_t algorithm(std::uint64_t number) {
  cublasLtMatmulAlgo_t made{};
  for (std::uint64_t i = 0; i < 8; ++i) made.data[i] = (number << 56) | i;
  return made;
}

GemmCacheEntry entry(std::uint64_t number, double us = 10) {
  return {.algorithm = algorithm(number), .us = us, .is_first = number == 1};
}

// Returns the number of the algorithm that a cache finds, or 0.
std::uint64_t found(const GemmCache& cache, const std::string& shape) {
  const GemmCacheEntry* entry = cache.find(shape);
  return entry != nullptr ? entry->algorithm.data[0] >> 56 : 0;
}

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

void write(const fs::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("a choice is found again by the next run, in folders that were not there") {
  const test::TemporaryFolder folder;
  const fs::path path = folder / "a/b/gemm.jsonl";
  GemmCache cache(path, h200());
  CHECK(cache.find("m1") == nullptr);
  cache.add({{"m1", entry(1, 812.4)}, {"m2", entry(2)}});
  CHECK(found(cache, "m1") == 1);

  const GemmCache next(path, h200());
  const GemmCacheEntry* got = next.find("m1");
  REQUIRE(got != nullptr);
  CHECK(to_hex(got->algorithm) == to_hex(algorithm(1)));
  CHECK(got->us == doctest::Approx(812.4));
  CHECK(got->is_first);
  REQUIRE(next.find("m2") != nullptr);
  CHECK_FALSE(next.find("m2")->is_first);
  CHECK(next.find("m3") == nullptr);
  CHECK(cache.notes().empty());
  CHECK(next.notes().empty());
}

TEST_CASE("a line has the form that is documented") {
  const test::TemporaryFolder folder;
  const fs::path path = folder / "gemm.jsonl";
  GemmCache(path, h200()).add({{"m4096 n12288 k4096 nt bf16>bf16 a256", entry(0xAB, 812.4321)}});
  const auto lines = lines_of(path);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].substr(0, lines[0].find(",\"crc\"")) ==
        R"({"gemm":1,"gpu":"NVIDIA H200, 132 SMs","cublaslt":"13.1.0","driver":"13.0",)"
        R"("workspace_bytes":67108864,"shape":"m4096 n12288 k4096 nt bf16>bf16 a256",)"
        R"("algorithm":"ab00000000000000ab00000000000001ab00000000000002ab00000000000003)"
        R"(ab00000000000004ab00000000000005ab00000000000006ab00000000000007",)"
        R"("us":812.432,"is_first":false)");
  CHECK(seal_holds(lines[0]));
}

TEST_CASE("a choice holds for its GPU, library, driver and workspace alone, and all share a file") {
  const test::TemporaryFolder folder;
  const fs::path path = folder / "gemm.jsonl";
  std::vector<GemmMachine> machines(5, h200());
  machines[1].gpu = "NVIDIA H200, 114 SMs";
  machines[2].cublaslt = "13.2.0";
  machines[3].driver = "12.9";
  machines[4].workspace_bytes = 32 << 20;
  for (std::size_t i = 0; i < machines.size(); ++i) {
    GemmCache cache(path, machines[i]);
    CHECK(cache.find("m1") == nullptr);
    cache.add({{"m1", entry(i + 1)}});
  }
  for (std::size_t i = 0; i < machines.size(); ++i)
    CHECK(found(GemmCache(path, machines[i]), "m1") == i + 1);
}

TEST_CASE("of two that choose at once the first to write decides for both, and nothing is lost") {
  const test::TemporaryFolder folder;
  const fs::path path = folder / "gemm.jsonl";
  GemmCache one(path, h200());
  GemmCache other(path, h200());
  one.add({{"m1", entry(1)}, {"m2", entry(1)}});
  other.add({{"m1", entry(2)}, {"m3", entry(2)}});
  CHECK(found(other, "m1") == 1);
  CHECK(found(other, "m3") == 2);
  const GemmCache next(path, h200());
  CHECK(found(next, "m1") == 1);
  CHECK(found(next, "m2") == 1);
  CHECK(found(next, "m3") == 2);
}

TEST_CASE("what does not run any more is replaced, but not what another put in its place") {
  const test::TemporaryFolder folder;
  const fs::path path = folder / "gemm.jsonl";
  GemmCache(path, h200()).add({{"m1", entry(1)}, {"m2", entry(1)}});
  GemmCache cache(path, h200());
  cache.reject("m1");
  CHECK(cache.find("m1") == nullptr);
  CHECK(found(cache, "m2") == 1);
  GemmCache late(path, h200());
  late.reject("m1");
  cache.add({{"m1", entry(3)}});
  CHECK(found(GemmCache(path, h200()), "m1") == 3);
  CHECK(lines_of(path).size() == 2);
  late.add({{"m1", entry(4)}});
  CHECK(found(late, "m1") == 3);
  CHECK(found(GemmCache(path, h200()), "m1") == 3);
}

TEST_CASE("damaged lines and those of another version cost one note and are gone after a write") {
  const test::TemporaryFolder folder;
  const fs::path path = folder / "gemm.jsonl";
  GemmCache(path, h200()).add({{"m1", entry(1)}, {"m2", entry(2)}, {"m3", entry(3)}});
  auto lines = lines_of(path);
  REQUIRE(lines.size() == 3);
  // Damaged lines: a flipped digit of an algorithm, a line of a later version whose seal holds,
  // half a line.
  lines[1][lines[1].find("algorithm") + 20] ^= 1;
  const std::string tomorrow = seal(R"({"gemm":2,"gpu":"NVIDIA H200, 132 SMs"})");
  write(path, lines[0] + "\n" + lines[1] + "\n" + tomorrow + "\n" + lines[2] + "\n" +
                  lines[0].substr(0, 100));
  GemmCache cache(path, h200());
  CHECK(found(cache, "m1") == 1);
  CHECK(cache.find("m2") == nullptr);
  CHECK(found(cache, "m3") == 3);
  REQUIRE(cache.notes().size() == 1);
  CHECK(cache.notes()[0] == path.string() +
                                ": 3 of 5 lines are damaged or of another version; they are left "
                                "out and the file is written anew");
  cache.add({});
  CHECK(lines_of(path) == std::vector{lines[0], lines[2]});
  CHECK(cache.notes().size() == 1);
  CHECK(GemmCache(path, h200()).notes().empty());
}

TEST_CASE("a file of something else is no error, and is written anew") {
  const test::TemporaryFolder folder;
  const fs::path path = folder / "gemm.jsonl";
  for (
      const std::string& text :
      {std::string("\x7f"
                   "ELF\0\xff\xfe\n\n\n",
                   10),
       std::string("[]"), std::string("\n"), seal(R"({"gemm":1})"),
       seal(
           R"({"gemm":1,"gpu":"NVIDIA H200, 132 SMs","cublaslt":"13.1.0","driver":"13.0",)"
           R"("workspace_bytes":67108864,"shape":"m1","algorithm":"12","us":1,"is_first":true})")}) {
    write(path, text);
    GemmCache cache(path, h200());
    CHECK(cache.find("m1") == nullptr);
    CHECK(cache.notes().size() == 1);
    cache.add({{"m1", entry(5)}});
    CHECK(found(GemmCache(path, h200()), "m1") == 5);
    CHECK(lines_of(path).size() == 1);
  }
}

TEST_CASE("where nothing can be kept, the choices of the run hold and a note says why") {
  const test::TemporaryFolder folder;
  write(folder / "file", "");
  GemmCache cache(folder / "file/gemm.jsonl", h200());
  cache.add({{"m1", entry(1)}});
  CHECK(found(cache, "m1") == 1);
  REQUIRE(cache.notes().size() == 1);
  CHECK(cache.notes()[0].starts_with((folder / "file").string()));
  CHECK(cache.notes()[0].ends_with("; chosen GEMM algorithms are not kept"));

  fs::create_directories(folder / "folder.jsonl");
  GemmCache other(folder / "folder.jsonl", h200());
  REQUIRE(other.notes().size() == 1);
  CHECK(other.notes()[0].ends_with("; GEMM algorithms are chosen anew"));
}

TEST_CASE("without a path nothing is read or written") {
  GemmCache cache({}, h200());
  cache.add({{"m1", entry(1)}});
  CHECK(found(cache, "m1") == 1);
  CHECK(cache.notes().empty());
}

TEST_CASE("processes that add at the same time lose nothing, and readers never see half a file") {
  const test::TemporaryFolder folder;
  const fs::path path = folder / "gemm.jsonl";
  constexpr int kProcesses = 6;
  constexpr int kEach = 15;
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      bool is_fine = true;
      for (int i = 0; i < kEach; ++i) {
        GemmCache cache(path, h200());
        cache.add({{fmt::format("m{} of {}", i, process), entry(1)}});
        is_fine = is_fine && cache.notes().empty();
      }
      ::_exit(is_fine ? 0 : 1);
    }
    children.push_back(child);
  }
  std::size_t running = children.size();
  while (running > 0) {
    CHECK(GemmCache(path, h200()).notes().empty());
    int status = 0;
    if (::waitpid(-1, &status, WNOHANG) > 0) {
      CHECK(status == 0);
      --running;
    }
  }
  const GemmCache cache(path, h200());
  for (int process = 0; process < kProcesses; ++process) {
    for (int i = 0; i < kEach; ++i)
      CHECK(cache.find(fmt::format("m{} of {}", i, process)) != nullptr);
  }
  CHECK(files_in(folder.path()) == 2);  // the file and its lock
}

TEST_CASE("a write waits for another's lock") {
  const test::TemporaryFolder folder;
  const fs::path path = folder / "gemm.jsonl";
  const FileDescriptor lock(
      ::open((path.string() + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(::flock(lock.get(), LOCK_EX) == 0);
  std::atomic<bool> is_done = false;
  std::thread writer([&] {
    GemmCache(path, h200()).add({{"m1", entry(1)}});
    is_done = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  CHECK_FALSE(is_done);
  CHECK_FALSE(fs::exists(path));
  REQUIRE(::flock(lock.get(), LOCK_UN) == 0);
  writer.join();
  CHECK(found(GemmCache(path, h200()), "m1") == 1);
}

TEST_CASE("the file keeps the newest 4096 choices") {
  const test::TemporaryFolder folder;
  const fs::path path = folder / "gemm.jsonl";
  GemmCache(path, h200()).add({{"the oldest", entry(1)}});
  std::map<std::string, GemmCacheEntry> many;
  for (int i = 0; i < 4095; ++i) many[fmt::format("m{}", i)] = entry(1);
  GemmCache(path, h200()).add(many);
  CHECK(found(GemmCache(path, h200()), "the oldest") == 1);
  GemmCache(path, h200()).add({{"the newest", entry(2)}});
  const GemmCache cache(path, h200());
  CHECK(cache.find("the oldest") == nullptr);
  CHECK(found(cache, "the newest") == 2);
  CHECK(lines_of(path).size() == 4096);
}

TEST_CASE("the cache lies in XDG_CACHE_HOME, else in the home folder, else nowhere") {
  const auto variable = [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  };
  const auto restore = [](const char* name, const std::optional<std::string>& value) {
    value ? ::setenv(name, value->c_str(), 1) : ::unsetenv(name);
  };
  const auto cache_home = variable("XDG_CACHE_HOME");
  const auto home = variable("HOME");
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  ::setenv("HOME", "/home/ada", 1);
  CHECK(default_gemm_cache() == "/cache/tessera/gemm-v1.jsonl");
  ::unsetenv("XDG_CACHE_HOME");
  CHECK(default_gemm_cache() == "/home/ada/.cache/tessera/gemm-v1.jsonl");
  ::unsetenv("HOME");
  CHECK(default_gemm_cache().empty());
  restore("XDG_CACHE_HOME", cache_home);
  restore("HOME", home);
}

TEST_CASE(
    "the hash of the algorithms in use changes with each of them, and not with what they took") {
  using Table = std::map<std::string, cublasLtMatmulAlgo_t>;
  const Table table{{"m1", algorithm(1)}, {"m2", algorithm(2)}};
  const std::string hash = gemm_table_hash(h200(), table);
  CHECK(hash.size() == 16);
  CHECK(hash.find_first_not_of("0123456789abcdef") == std::string::npos);
  GemmMachine roomier = h200();
  roomier.workspace_bytes *= 2;
  CHECK(gemm_table_hash(roomier, table) == hash);
  GemmMachine other = h200();
  other.cublaslt = "13.2.0";
  // The same letters in a row, split elsewhere.
  GemmMachine parted = h200();
  parted.gpu += parted.cublaslt.substr(0, 1);
  parted.cublaslt.erase(0, 1);
  for (const std::string& changed :
       {gemm_table_hash(h200(), Table{{"m1", algorithm(1)}, {"m2", algorithm(3)}}),
        gemm_table_hash(h200(), Table{{"m1", algorithm(2)}, {"m2", algorithm(1)}}),
        gemm_table_hash(h200(), Table{{"m1", algorithm(1)}}),
        gemm_table_hash(h200(), Table{{"m1", algorithm(1)}, {"m3", algorithm(2)}}),
        gemm_table_hash(other, table), gemm_table_hash(parted, table), gemm_table_hash(h200(), {})})
    CHECK(changed != hash);
}
