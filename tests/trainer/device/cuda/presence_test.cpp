// What is said where no GPU is, and that libraries are found where they may be.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "lib/base/error.h"
#include "tests/temporary.h"
#include "trainer/device/cuda/libraries.h"
#include "trainer/device/gpu.h"

using namespace tessera;
using namespace tessera::trainer;
namespace fs = std::filesystem;

TEST_CASE("without a GPU the reason is told, and how else to go on") {
  const GpuPresence presence = gpu_presence();
  CHECK(presence.is_built);
  CHECK(presence.cuda.starts_with("1"));
  if (!presence.names.empty()) return;  // a machine with one
  CHECK(presence.why_none != "");
  try {
    open_gpu({});
    FAIL("a GPU that is not there");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::wrong_device);
    CHECK(std::string(error.what()) ==
          "gpu: " + presence.why_none + "; gpu: cpu, or a node with a GPU");
  }
}

TEST_CASE("libraries are looked for in the named folders first, and in Python's packages") {
  const test::TemporaryFolder folder;
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
  CHECK(folders[2].empty());  // the loader's own way
  const auto has = [&](const fs::path& wanted) {
    return std::ranges::find(folders, wanted) != folders.end();
  };
  CHECK(has("/usr/local/cuda/lib64"));
  CHECK(has(packages / "cublas" / "lib"));
  CHECK(has(packages / "cudnn" / "lib"));
}

TEST_CASE("a library that is nowhere is null, a file that is none too") {
  CHECK(cuda::try_open_library("libtessera-is-nowhere.so.9") == nullptr);
  const test::TemporaryFolder folder;
  std::ofstream(folder.path() / "libtessera-is-text.so.9") << "no library";
  ::setenv("TESSERA_CUDA_LIBRARIES", folder.path().c_str(), 1);
  CHECK(cuda::try_open_library("libtessera-is-text.so.9") == nullptr);
  ::unsetenv("TESSERA_CUDA_LIBRARIES");
}
