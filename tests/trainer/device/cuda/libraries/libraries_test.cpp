// SPDX-License-Identifier: Apache-2.0
// If several of NVIDIA's libraries are there, the right ones are taken, and the parts of one come
// from one place, whatever the loader would take.
//
// Programs that open them run in an environment of their own, some without the loader's cache: this
// machine's toolkit may be in that cache, which another machine has only as a folder.
#include <cudnn.h>
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "lib/base/command.h"
#include "lib/base/error.h"
#include "tests/temporary.h"
#include "trainer/device/cuda/libraries/cudnn_library.h"
#include "trainer/device/cuda/libraries/library_search.h"

using namespace tessera;
using namespace tessera::trainer::cuda;
namespace fs = std::filesystem;

namespace {

const fs::path kToolkit = TESSERA_CUDA_LIBRARY_FOLDER;
// Versions of fake_cudnn_part.cpp: 9.10.2 for CUDA 13, 9.19.0 for CUDA 12, 9.99.0 for this CUDA.
const fs::path kOld = fs::path(TESSERA_FAKE_CUDNN_FOLDER) / "old";
const fs::path kOtherCuda = fs::path(TESSERA_FAKE_CUDNN_FOLDER) / "other_cuda";
const fs::path kGood = fs::path(TESSERA_FAKE_CUDNN_FOLDER) / "good";

const std::string kTooOld = "cuDNN 9.10.2 is too old for attention, which needs 9.18.0";
const std::string kForOtherCuda = "cuDNN 9.19.0 is for CUDA 12, the trainer for CUDA 13";

template <class Run>
std::string message_of(const Run& run) {
  try {
    run();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::unsupported);
    return error.what();
  }
  FAIL("no error");
  return {};
}

struct Setting {
  std::string libraries;       // TESSERA_CUDA_LIBRARIES
  std::string loader;          // LD_LIBRARY_PATH
  bool without_cache = false;  // of the loader
};

// Returns this program's loader, which starts others without its cache.
std::string loader_path() {
  const std::vector<fs::path> found = open_files("ld-linux");
  REQUIRE(found.size() == 1);
  return found[0].string();
}

CommandResult probe(const Setting& setting, const std::vector<std::string>& arguments) {
  std::vector<std::string> command;
  if (setting.without_cache) command = {loader_path(), "--inhibit-cache"};
  command.emplace_back(TESSERA_LIBRARIES_PROBE);
  command.insert(command.end(), arguments.begin(), arguments.end());
  CommandOptions options;
  options.environment = {"PATH=/usr/bin:/bin"};
  if (!setting.libraries.empty())
    options.environment->push_back("TESSERA_CUDA_LIBRARIES=" + setting.libraries);
  if (!setting.loader.empty()) options.environment->push_back("LD_LIBRARY_PATH=" + setting.loader);
  return run_command(command, options);
}

bool has(const CommandResult& result, const std::string& text) {
  return result.out.find(text) != std::string::npos;
}

// The driver stub answers so to the loading of a kernel, the last step of all: cuDNN found
// everything it opens, and compiled.
void check_compiled(const CommandResult& result) {
  CAPTURE(result.out);
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  CHECK(has(result, fmt::format("cudnn {}.{}.{} ", CUDNN_MAJOR, CUDNN_MINOR, CUDNN_PATCHLEVEL)));
  CHECK(has(result, "plan CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER"));
  CHECK(has(result, "cuLibraryLoadData"));
}

std::vector<fs::path> opened(const CommandResult& result, const std::string& beginning) {
  std::vector<fs::path> files;
  constexpr std::string_view kOpen = "open ";
  for (std::size_t at = 0; at < result.out.size();) {
    const std::size_t end = std::min(result.out.find('\n', at), result.out.size());
    const std::string line = result.out.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(kOpen)) continue;
    fs::path file = line.substr(kOpen.size());
    if (file.filename().string().starts_with(beginning)) files.push_back(file);
  }
  return files;
}

// Checks that all of cuDNN comes from the toolkit.
void check_toolkit_cudnn(const CommandResult& result) {
  check_compiled(result);
  const std::vector<fs::path> files = opened(result, "libcudnn");
  CHECK(files.size() >= 5);
  for (const fs::path& file : files)
    CHECK(fs::canonical(file.parent_path()) == fs::canonical(kToolkit));
}

// Links the toolkit's files whose names begin so into a folder.
void link_toolkit(const fs::path& folder, const std::vector<std::string>& beginnings) {
  for (const std::string& beginning : beginnings) {
    const std::vector<fs::path> files = files_beside(kToolkit / "any", beginning);
    REQUIRE_FALSE(files.empty());
    for (const fs::path& file : files)
      fs::create_symlink(fs::canonical(file), folder / file.filename());
  }
}

}  // namespace

TEST_CASE("a cuDNN that is too old or for another CUDA is passed over, and nothing of it is open") {
  const test::TemporaryFolder alone;
  fs::copy_file(kGood / "libcudnn.so.9", alone / "libcudnn.so.9");
  const test::TemporaryFolder again;
  fs::create_symlink(kOld / "libcudnn.so.9", again / "libcudnn.so.9");
  const std::vector<fs::path> folders = {kOld,         again.path(), "/nowhere", kOtherCuda,
                                         alone.path(), kGood,        kToolkit};
  std::string faults;
  const Library taken = find_library("libcudnn.so.9", folders, why_not_cudnn, faults);
  CHECK(taken.path == kGood / "libcudnn.so.9");
  CHECK(faults == fmt::format("; {}: {}; {}: {}; {}: no libcudnn_graph.so.9 lies beside it",
                              (kOld / "libcudnn.so.9").string(), kTooOld,
                              (kOtherCuda / "libcudnn.so.9").string(), kForOtherCuda,
                              (alone / "libcudnn.so.9").string()));
  CHECK(open_files("libcudnn") == std::vector{kGood / "libcudnn.so.9"});
  // Opened plainly, these do stay open, as the real one does.
  dlclose(dlopen((kOld / "libcudnn_graph.so.9").c_str(), RTLD_LAZY));
  CHECK(open_files("libcudnn_graph") == std::vector{kOld / "libcudnn_graph.so.9"});
}

TEST_CASE("where no cuDNN is to be used it is told what was found where and why it is not") {
  const std::vector<fs::path> folders = {kOld, "/nowhere", kOtherCuda};
  const std::string text =
      message_of([&] { require_library("libcudnn.so.9", folders, why_not_cudnn); });
  CHECK(text == fmt::format("libcudnn.so.9: none to be used; looked in {0}, in /nowhere, in {1}; "
                            "{0}/libcudnn.so.9: {2}; {1}/libcudnn.so.9: {3}; name its folder in "
                            "TESSERA_CUDA_LIBRARIES, or use gpu: cpu",
                            kOld.string(), kOtherCuda.string(), kTooOld, kForOtherCuda));
}

TEST_CASE("libraries of another version are named where the right one is missing") {
  const test::TemporaryFolder environment;
  const fs::path nvidia = environment / "nvidia";
  for (const char* package : {"cublas", "cudnn"}) fs::create_directories(nvidia / package / "lib");
  const fs::path older = nvidia / "cublas" / "lib" / "libtesseraLt.so.12";
  std::ofstream(older) << "not asked for";
  const test::TemporaryFolder named;
  const fs::path newer = named / "libtesseraLt.so.14";
  std::ofstream(newer) << "neither";
  const std::vector<fs::path> folders = {fs::path(), nvidia / "cublas" / "lib",
                                         nvidia / "cudnn" / "lib"};
  ::setenv("LD_LIBRARY_PATH", named.path().c_str(), 1);
  const std::string text = message_of([&] { require_library("libtesseraLt.so.13", folders); });
  ::unsetenv("LD_LIBRARY_PATH");
  CHECK(text == fmt::format("libtesseraLt.so.13: none to be used; looked by the loader "
                            "(LD_LIBRARY_PATH={}), in {}/*/lib; of other versions there is {}, {}; "
                            "name its folder in "
                            "TESSERA_CUDA_LIBRARIES, or use gpu: cpu",
                            named.path().string(), nvidia.string(), newer.string(),
                            older.string()));
  // If there is no other version, none is named.
  CHECK(message_of([] { require_library("libtesseraLt.so.13", {}); }).find("there is") ==
        std::string::npos);
}

TEST_CASE("the run-time compiler compiles where its built-ins are not where the loader looks") {
  const test::TemporaryFolder folder;
  link_toolkit(folder.path(), {"libcublasLt.so.", "libcudnn", "libnvrtc"});
  const Setting setting{.libraries = folder.path().string(), .loader = {}, .without_cache = true};
  // The built-ins are elsewhere, so the compiler by itself finds none beside it.
  const CommandResult plain = probe(setting, {"nvrtc", (folder / "libnvrtc.so.13").string()});
  CAPTURE(plain.out);
  CHECK(has(plain, "nvrtcCompileProgram 7"));
  CHECK(has(plain, "failed to open libnvrtc-builtins.so"));

  const CommandResult ours = probe(setting, {"plan"});
  check_compiled(ours);
  for (const char* name : {"libcudnn", "libnvrtc"}) {
    const std::vector<fs::path> files = opened(ours, name);
    CHECK(files.size() >= 2);
    for (const fs::path& file : files) CHECK(file.parent_path() == folder.path());
  }
}

TEST_CASE("what lies beside a library is found though the library is a link") {
  const test::TemporaryFolder folder;
  link_toolkit(folder.path(), {"libcublasLt.so.", "libcudnn.so.", "libnvrtc.so."});
  const CommandResult ours =
      probe({.libraries = folder.path().string(), .loader = {}, .without_cache = true}, {"plan"});
  check_compiled(ours);
  REQUIRE(opened(ours, "libcudnn_graph").size() == 1);
  CHECK(opened(ours, "libcudnn_graph")[0].parent_path() == fs::canonical(kToolkit));
}

TEST_CASE("cuDNN's parts come from its own folder though LD_LIBRARY_PATH leads to others") {
  const test::TemporaryFolder foreign;
  for (const char* part : {"graph", "heuristic", "engines_precompiled", "engines_runtime_compiled"})
    fs::copy_file(kGood / "libcudnn_graph.so.9", foreign / fmt::format("libcudnn_{}.so.9", part));
  const Setting setting{.libraries = {}, .loader = foreign.path().string()};
  // cuDNN by itself opens the wrong parts and dies of it.
  const CommandResult plain = probe(setting, {"cudnn", (kToolkit / "libcudnn.so.9").string()});
  CHECK(plain.exit_code > 128);
  CHECK_FALSE(has(plain, "cudnnBackendCreateDescriptor"));

  check_toolkit_cudnn(probe(setting, {"plan"}));
}

TEST_CASE("the real cuDNN works after others of its name were passed over, named or the loader's") {
  const std::string both = kOld.string() + ":" + kOtherCuda.string();
  for (const Setting& setting :
       {Setting{.libraries = both, .loader = {}}, Setting{.libraries = {}, .loader = kOld.string()},
        Setting{.libraries = kOld.string(), .loader = kOtherCuda.string()}}) {
    CAPTURE(setting.libraries);
    CAPTURE(setting.loader);
    check_toolkit_cudnn(probe(setting, {"plan"}));
  }
}

TEST_CASE("a cuDNN without one of its parts, or with one of another's, is refused by name") {
  const std::string unsupported = fmt::format("error {} ", static_cast<int>(ExitCode::unsupported));
  const test::TemporaryFolder folder;
  link_toolkit(folder.path(), {"libcudnn"});
  const fs::path broken = folder / "libcudnn_heuristic.so.9";
  fs::remove(broken);
  std::ofstream(broken) << "no library";
  const CommandResult without =
      probe({.libraries = folder.path().string(), .loader = {}}, {"plan"});
  CAPTURE(without.out);
  CHECK(has(without, unsupported + (folder / "libcudnn.so.9").string() +
                         ": its parts are not to be used together; " + broken.string() + ": "));

  // It asks for its parts by their full versions first, and that is not the name they tell.
  const test::TemporaryFolder foreign;
  const fs::path graph = foreign / fmt::format("libcudnn_graph.so.{}.{}.{}", CUDNN_MAJOR,
                                               CUDNN_MINOR, CUDNN_PATCHLEVEL);
  fs::copy_file(kGood / "libcudnn_graph.so.9", graph);
  const CommandResult mixed = probe({.libraries = {}, .loader = foreign.path().string()}, {"plan"});
  CAPTURE(mixed.out);
  CHECK(has(mixed, unsupported));
  CHECK(has(mixed, "; " + graph.string() + " was opened from elsewhere"));
}
