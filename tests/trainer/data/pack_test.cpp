// SPDX-License-Identifier: Apache-2.0
// Packing text and training on the result, with the real program.
#include "trainer/data/pack.h"

#include <doctest/doctest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "tests/temporary.h"
#include "tests/trainer/data/token_bytes.h"
#include "tests/trainer/run/program.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;
using tessera::test::TemporaryFolder;
using Json = nlohmann::ordered_json;

namespace {

std::vector<std::uint32_t> ids_of(const std::vector<std::string>& texts) {
  std::vector<std::uint32_t> ids;
  for (const std::string& text : texts) {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    ids.push_back(256);
  }
  return ids;
}

std::size_t files_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

// Returns text with a structure that a small model learns in a few steps.
std::string text() {
  std::string lines;
  for (int i = 0; i < 2000; ++i) lines += "the cat sat on the mat.\n";
  return lines;
}

sweep::RunSpec byte_spec(const std::filesystem::path& run_dir, const std::filesystem::path& data) {
  sweep::RunSpec spec = small_spec(run_dir);
  spec.point.model.vocab = kByteVocab;
  spec.point.data = data.string();
  return spec;
}

std::vector<double> losses(const std::filesystem::path& run_dir) {
  std::vector<double> all;
  for (const Json& record : records_of(read_file(log_in(run_dir)))) {
    if (record.at("t") == "step") all.push_back(record.at("loss"));
  }
  return all;
}

}  // namespace

TEST_CASE("bytes are ids, and each file ends with 256") {
  const TemporaryFolder folder;
  std::string every;
  for (int i = 0; i < 256; ++i) every += static_cast<char>(i);
  write_file_atomically(folder / "a.txt", every);
  write_file_atomically(folder / "b.txt", "");
  const ProgramResult result =
      run_trainer({.arguments = {"--pack-bytes", folder / "out.tok", folder / "a.txt",
                                 folder / "b.txt", "-", folder / "a.txt"},
                   .input = "hi"});
  CHECK(result.exit_code == 0);
  CHECK(result.err == "");
  CHECK(result.out == (folder / "out.tok").string() + ": 518 tokens, 1100 bytes, vocabulary 257\n");
  CHECK(read_file(folder / "out.tok") == packed_tokens(ids_of({every, "", "hi", every}), 2, 257));
  CHECK(files_in(folder.path()) == 3);
}

TEST_CASE("inputs of more than a read's length are packed whole") {
  const TemporaryFolder folder;
  std::string large;
  for (std::int64_t i = 0; large.size() < 3000001; ++i) large += std::to_string(i * 7919) + ",";
  write_file_atomically(folder / "a.txt", large);
  const std::atomic<int> stop{0};
  const std::vector<std::string> inputs{folder / "a.txt", folder / "a.txt"};
  const Packed packed = pack_bytes(folder / "out.tok", inputs, stderr, stop);
  CHECK(packed.tokens == static_cast<std::int64_t>(2 * large.size() + 2));
  CHECK(packed.bytes == 64 + 2 * packed.tokens);
  CHECK(read_file(folder / "out.tok") == packed_tokens(ids_of({large, large}), 2, 257));
}

TEST_CASE("a file that is there is not overwritten, and no fault leaves a file behind") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a.txt", "abc");
  write_file_atomically(folder / "mine.tok", "mine");
  std::filesystem::create_symlink("nowhere", folder / "link.tok");
  const auto fault = [&](const std::vector<std::string>& files, int exit_code) {
    std::vector<std::string> arguments{"--pack-bytes"};
    arguments.insert(arguments.end(), files.begin(), files.end());
    const ProgramResult result = run_trainer({.arguments = arguments});
    CHECK(result.exit_code == exit_code);
    CHECK(result.out == "");
    CHECK(files_in(folder.path()) == 3);
    CHECK(result.err.starts_with("trainer: "));
    return result.err.substr(9);
  };
  const std::string input = folder / "a.txt";
  CHECK(fault({folder / "mine.tok", input}, 2) ==
        (folder / "mine.tok").string() +
            ": is there already and is not overwritten; name another file, or remove it first\n");
  CHECK(read_file(folder / "mine.tok") == "mine");
  CHECK(fault({folder / "link.tok", input}, 2).find("is there already") != std::string::npos);
  CHECK(fault({input, input}, 2).find("is there already") != std::string::npos);
  CHECK(fault({folder / "out.tok", input, folder / "none.txt"}, 18) ==
        (folder / "none.txt").string() + ": cannot be read: No such file or directory\n");
  CHECK(fault({folder / "out.tok", folder.path()}, 18) ==
        folder.path().string() + ": cannot be read: Is a directory\n");
  CHECK(fault({folder / "no/such/out.tok", input}, 18) ==
        (folder / "no/such/out.tok").string() + ": cannot be written: No such file or directory\n");
  CHECK(fault({folder / "out.u16", input}, 2).find("is read as raw tokens") != std::string::npos);
  CHECK(fault({"-", input}, 2) ==
        "OUT: is stdout, where no header can be written last; name a file\n");
  CHECK(fault({folder / "out.tok"}, 2) ==
        "FILE: is missing; write trainer pack-bytes OUT FILE...\n");
  CHECK(fault({folder / "out.tok", input, "--capabilities"}, 2) ==
        "--capabilities: does not go with trainer pack-bytes; write trainer capabilities\n");
}

TEST_CASE("a signal ends the packing without a trace") {
  const TemporaryFolder folder;
  const ProgramResult result =
      run_trainer({.arguments = {"--pack-bytes", folder / "out.tok", "/dev/zero"},
                   .signal = SIGTERM,
                   .when = [&] { return files_in(folder.path()) > 0; }});
  CHECK(result.exit_code == 130);
  CHECK(result.err == "trainer: interrupted\n");
  CHECK(files_in(folder.path()) == 0);
}

TEST_CASE("a text is packed and trained on, and the log says what was read") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a.txt", text());
  const auto data = folder / "a.tok";
  REQUIRE(run_trainer({.arguments = {"--pack-bytes", data, folder / "a.txt"}}).exit_code == 0);
  std::filesystem::create_directories(folder / "file");
  std::filesystem::create_directories(folder / "synthetic");
  sweep::RunSpec spec = byte_spec(folder / "file", data);
  spec.point.steps = 60;
  const ProgramResult result = train_spec(spec);
  CHECK(result.err == "");
  CHECK(result.exit_code == 0);
  const std::vector<double> on_text = losses(folder / "file");
  // Guessing costs ln 257 = 5.55; guessing among the text's 11 letters costs 2.4.
  CHECK(on_text.front() > 5);
  CHECK(on_text.back() < 4.5);

  spec.point.data = "synthetic";
  spec.run_dir = folder / "synthetic";
  CHECK(train_spec(spec).exit_code == 0);
  CHECK(losses(folder / "synthetic").back() > 5);

  const Json effective = records_of(read_file(log_in(folder / "file")))[2];
  CHECK(effective.at("data") == data.string());
  CHECK(effective.at("data_tokens") == 48001);
  char crc[9];
  std::snprintf(crc, sizeof crc, "%08x", crc32(raw_tokens(ids_of({text()}), 2)));
  CHECK(effective.at("data_crc32") == crc);
  CHECK(effective.at("data_epochs") == 60.0 * 5 / 3000);
  const Json synthetic = records_of(read_file(log_in(folder / "synthetic")))[2];
  for (const char* key : {"data_tokens", "data_crc32", "data_epochs"})
    CHECK_FALSE(synthetic.contains(key));
}

TEST_CASE("the losses are the same for every split of the global batch") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a.u16", raw_tokens(ids_of({text()}), 2));
  std::vector<std::vector<double>> all;
  for (const std::int64_t microbatch : {1, 2, 5}) {
    const auto run_dir = folder / std::to_string(microbatch);
    std::filesystem::create_directories(run_dir);
    sweep::RunSpec spec = byte_spec(run_dir, folder / "a.u16");
    spec.point.microbatch_size = microbatch;
    CHECK(train_spec(spec).exit_code == 0);
    all.push_back(losses(run_dir));
  }
  REQUIRE(all[0].size() == 6);
  for (std::size_t step = 0; step < 6; ++step) {
    CHECK(all[1][step] == doctest::Approx(all[0][step]).epsilon(1e-5));
    CHECK(all[2][step] == doctest::Approx(all[0][step]).epsilon(1e-5));
  }
}

TEST_CASE("what is wrong with the data ends the run before step one, with a footer") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "cut.tok", packed_tokens(ids_of({text()}), 2, 257).substr(0, 999));
  std::vector<std::uint32_t> wrong = ids_of({text()});
  wrong[40000] = 300;
  write_file_atomically(folder / "wrong.u16", raw_tokens(wrong, 2));
  for (const auto& [name, what] : std::vector<std::pair<std::string, std::string>>{
           {"cut.tok",
            "is cut short: it has 999 bytes, its header says 96066; copy or pack it again"},
           {"wrong.u16",
            "token 40000 is 300, beyond the vocabulary of 257; data and model need the same "
            "tokeniser"},
           {"none.tok", "cannot be read: No such file or directory"}}) {
    CAPTURE(name);
    const auto run_dir = folder / ("run-" + name);
    std::filesystem::create_directories(run_dir);
    const ProgramResult result = train_spec(byte_spec(run_dir, folder / name));
    CHECK(result.exit_code == 18);
    const std::string line = (folder / name).string() + ": " + what;
    CHECK(result.err == "trainer: " + line + "\n");
    const std::vector<Json> records = records_of(read_file(log_in(run_dir)));
    CHECK(records.size() == 3);  // header, row, footer
    const Json& footer = records.back();
    CHECK(footer.at("status") == "failed");
    CHECK(footer.at("exit") == 18);
    CHECK(footer.at("reason") == line);
  }
}
