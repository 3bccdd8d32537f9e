// SPDX-License-Identifier: Apache-2.0
#include "lib/ledger/state.h"

#include <doctest/doctest.h>

#include <cstdlib>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::ledger;

namespace {

struct StateFolder {
  test::TemporaryFolder folder;
  StateFolder() {
    ::setenv("TESSERA_STATE_DIR", (folder / "state").c_str(), 1);
    ::unsetenv("TESSERA_WORKSPACE");
  }
  ~StateFolder() { ::unsetenv("TESSERA_STATE_DIR"); }
};

}  // namespace

TEST_CASE("the last project and its workspace are remembered") {
  const StateFolder state;
  CHECK_FALSE(last_project().has_value());
  CHECK(remembered_projects().empty());
  remember_project("a", "/x/runs");
  remember_project("b", "/y/runs");
  CHECK(last_project() == "b");
  CHECK(remembered_projects() ==
        std::map<std::string, std::filesystem::path>{{"a", "/x/runs"}, {"b", "/y/runs"}});
  CHECK(remembered_workspace("a") == "/x/runs");
  CHECK(resolve_workspace("a", "") == "/x/runs");
  CHECK(resolve_workspace("new", "") == std::filesystem::absolute("runs"));
  CHECK(resolve_workspace("new", "/z/w/") == "/z/w");
  CHECK(resolve_workspace("new", "", "/of/cluster") == "/of/cluster");
  CHECK(resolve_workspace("a", "", "/of/cluster") == "/x/runs");
}

TEST_CASE("another workspace for a known project is an error that names both") {
  const StateFolder state;
  const std::filesystem::path first = state.folder / "first";
  make_directories(first / "a");
  remember_project("a", first);
  CHECK(resolve_workspace("a", first.string()) == first);
  try {
    resolve_workspace("a", "/elsewhere");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::conflict);
    CHECK(std::string(error.what()).find(first.string()) != std::string::npos);
    CHECK(std::string(error.what()).find("/elsewhere") != std::string::npos);
  }
  std::filesystem::remove_all(first);
  CHECK(resolve_workspace("a", "/elsewhere") == "/elsewhere");
}

TEST_CASE("a state that cannot be read is empty, and is written anew") {
  const StateFolder state;
  make_directories(state_dir());
  write_file_atomically(state_dir() / "projects.json", "{\"last\": ");
  CHECK_FALSE(last_project().has_value());
  remember_project("a", "/x");
  CHECK(last_project() == "a");
}

TEST_CASE("a measured peak holds for its CPU, threads and BLAS only") {
  const StateFolder state;
  const CpuPeakKey key{.cpu = "EPYC", .threads = 2, .blas = "OpenBLAS 0.3.21"};
  cache_cpu_peak(key, 0.17);
  CHECK(cached_cpu_peak(key) == 0.17);
  CpuPeakKey other = key;
  other.threads = 1;
  CHECK_FALSE(cached_cpu_peak(other).has_value());
  CHECK_FALSE(forget_cpu_peak(other));
  CHECK(cached_cpu_peak(key) == 0.17);
  CHECK(forget_cpu_peak(key));
  CHECK_FALSE(cached_cpu_peak(key).has_value());
}
