// SPDX-License-Identifier: Apache-2.0
// The reasons given if there is no GPU, and the folders in which libraries are found.
#include "trainer/device/cuda/libraries/presence.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "lib/base/error.h"
#include "tests/temporary.h"
#include "trainer/device/cuda/libraries/libraries.h"
#include "trainer/device/cuda/libraries/library_search.h"
#include "trainer/device/gpu.h"

using namespace tessera;
using namespace tessera::trainer;
namespace fs = std::filesystem;

TEST_CASE("without a GPU the reason is told, and how else to go on") {
  const GpuPresence presence = gpu_presence();
  CHECK(presence.is_built);
  CHECK(presence.cuda.starts_with("1"));
  if (!presence.names.empty()) return;  // this machine has one
  CHECK(presence.why_none != "");
  try {
    open_gpu({});
    FAIL("a GPU that is not there");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::unsupported);
    CHECK(std::string(error.what()) ==
          "gpu: " + presence.why_none + "; a machine with a GPU, or the CPU");
  }
}

TEST_CASE("a GPU that the build has no code for is told before anything is launched") {
  const std::vector<std::string> hopper{"90-real"};
  CHECK_FALSE(cuda::no_code_reason(hopper, 90));
  CHECK(cuda::no_code_reason(hopper, 80).value() ==
        "its compute capability is 8.0, this trainer has code for 9.0; a build with "
        "-DCMAKE_CUDA_ARCHITECTURES=80");
  const std::vector<std::string> usual{"80", "90-real", "100-real", "120"};
  CHECK_FALSE(cuda::no_code_reason(usual, 103));
  CHECK(cuda::no_code_reason(usual, 75).value() ==
        "its compute capability is 7.5, this trainer has code for 8.0 and newer; a GPU from Ampere "
        "(A100) on");
  // The architectures of this build.
  const std::vector<std::string> built = gpu_presence().architectures;
  REQUIRE_FALSE(built.empty());
  CHECK_FALSE(cuda::no_code_reason(built, 90));
}

TEST_CASE("libraries are looked for in the named folders first, and in Python's packages") {
  const tessera::test::TemporaryFolder folder;
  const fs::path packages = folder.path() / "lib" / "python3.12" / "site-packages" / "nvidia";
  fs::create_directories(packages / "cudnn" / "lib");
  fs::create_directories(packages / "cublas" / "lib");
  ::setenv("TESSERA_CUDA_LIBRARIES", "/first::/second", 1);
  ::setenv("VIRTUAL_ENV", folder.path().c_str(), 1);
  const std::vector<fs::path> folders = cuda::library_folders();
  ::unsetenv("TESSERA_CUDA_LIBRARIES");
  ::unsetenv("VIRTUAL_ENV");
  REQUIRE(folders.size() >= 4);
  CHECK(folders[0] == "/first");
  CHECK(folders[1] == "/second");
  CHECK(folders[2].empty());  // the loader's own search
  const auto has = [&](const fs::path& wanted) {
    return std::ranges::find(folders, wanted) != folders.end();
  };
  CHECK(has("/usr/local/cuda/lib64"));
  CHECK(has(packages / "cublas" / "lib"));
  CHECK(has(packages / "cudnn" / "lib"));
}

TEST_CASE("a library that is nowhere is null, a file that is none too") {
  CHECK(cuda::try_open_library("libtessera-is-nowhere.so.9") == nullptr);
  const tessera::test::TemporaryFolder folder;
  std::ofstream(folder.path() / "libtessera-is-text.so.9") << "no library";
  ::setenv("TESSERA_CUDA_LIBRARIES", folder.path().c_str(), 1);
  CHECK(cuda::try_open_library("libtessera-is-text.so.9") == nullptr);
  ::unsetenv("TESSERA_CUDA_LIBRARIES");
}
