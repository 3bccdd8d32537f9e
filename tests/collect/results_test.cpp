// SPDX-License-Identifier: Apache-2.0
// Where results go, and that a disk without room or rights leaves the old ones as they were.
#include "collect/results.h"

#include <doctest/doctest.h>
#include <sys/mount.h>
#include <unistd.h>

#include "collect/collection.h"
#include "collect/show.h"
#include "lib/base/error.h"
#include "tests/collect/sample_run.h"
#include "tests/temporary.h"

using namespace tessera;

namespace fs = std::filesystem;

namespace {

std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("the save path is a stem, or a folder that gets results.csv and results.md") {
  const test::TemporaryFolder folder;
  CHECK(collect::result_paths("", "tput").csv == "results/tput/results.csv");
  CHECK(collect::result_paths("", "").markdown == "results/results.md");
  CHECK(collect::result_paths("out/table", "tput").csv == "out/table.csv");
  CHECK(collect::result_paths("out/table.v2", "tput").markdown == "out/table.v2.md");
  CHECK(collect::result_paths("out/", "tput").csv == "out/results.csv");
  CHECK(collect::result_paths(folder.path().string(), "tput").csv == folder / "results.csv");
}

TEST_CASE("both files are written, and nothing else") {
  const test::TemporaryFolder folder;
  const auto paths = collect::result_paths((folder / "new" / "deep").string() + "/", "");
  collect::save(paths, "a\n", "b\n");
  collect::save(paths, "c\n", "d\n");
  CHECK(read_file(paths.csv) == "c\n");
  CHECK(read_file(paths.markdown) == "d\n");
  CHECK(files_in(folder / "new" / "deep") == 2);
}

TEST_CASE("a target that cannot be written is named, and the other file stays as it was") {
  const test::TemporaryFolder folder;
  write_file_atomically(folder / "results.csv", "old\n");
  fs::create_directory(folder / "results.md");
  const auto paths = collect::result_paths(folder.path().string(), "");
  CHECK_THROWS_WITH_AS(
      collect::save(paths, "new\n", "new\n"),
      ((folder / "results.md").string() + ": cannot be written: Is a directory").c_str(), Error);
  CHECK(read_file(folder / "results.csv") == "old\n");
  CHECK(files_in(folder.path()) == 2);

  write_file_atomically(folder / "file", "x");
  CHECK_THROWS_AS(
      collect::save(collect::result_paths((folder / "file" / "sub").string(), ""), "a", "b"),
      Error);
}

TEST_CASE("a full disk keeps the old results whole") {
  const test::TemporaryFolder folder;
  if (::geteuid() != 0 || ::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=64k") != 0) {
    MESSAGE("skipped: a small tmpfs cannot be mounted here (needs root and CAP_SYS_ADMIN)");
    return;
  }
  const auto paths = collect::result_paths(folder.path().string(), "");
  collect::save(paths, "old\n", "old\n");
  // The CSV has room, the Markdown beside it does not.
  std::string fault;
  try {
    collect::save(paths, std::string(20000, 'c'), std::string(60000, 'm'));
  } catch (const Error& error) {
    fault = error.what();
  }
  const std::string csv = read_file(paths.csv);
  const std::string markdown = read_file(paths.markdown);
  const std::size_t files = files_in(folder.path());
  ::umount(folder.path().c_str());
  CHECK(fault == paths.markdown.string() + ": cannot be written: No space left on device");
  CHECK(csv == "old\n");
  CHECK(markdown == "old\n");
  CHECK(files == 2);
}

TEST_CASE("show tells the calculation term by term, and its result is the row's") {
  const test::TemporaryFolder folder;
  test::SampleRun run;
  run.point = test::sample_point("7b", 2048, 48, 6);
  run.point.activation_checkpointing = Checkpointing::full;
  test::write_sample(folder.path(), run);
  collect::Request request;
  request.folders = {folder.path()};
  request.catalogues.built_in = hardware::built_in_catalogue();
  collect::Notes notes;
  const auto shown = collect::find_runs(request, test::name_of(run), notes);
  REQUIRE(shown.size() == 1);
  CHECK(collect::find_runs(request, test::id_of(run), notes).size() == 1);
  CHECK(collect::find_runs(request, "other", notes).empty());
  const std::string text = collect::show(shown[0]);
  for (const char* part :
       {"\"seq_len\":2048", "attempt 1.0 (counts)", "weights, forward", "2 x 6658859008 parameters",
        "attention, recomputed", "989.5 TFLOP/s a device", "catalogue: NVIDIA H100, SXM, dense",
        "tokens / time", "MFU                      46.62 %", "HFU                      62.16 %"}) {
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
}
