// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/token_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "tests/temporary.h"
#include "tests/trainer/data/token_bytes.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;
using tessera::test::TemporaryFolder;

namespace {

constexpr std::int64_t kMostVocab = std::int64_t{1} << 32;

std::vector<std::int32_t> read_all(const TokenFile& file, std::int64_t vocab = kMostVocab) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(file.layout().tokens));
  file.read(0, ids, vocab);
  return ids;
}

// Returns the error's text without the path that it begins with.
std::string fault(const std::filesystem::path& path, const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::failed);
    CHECK(error.where() == path.string());
    return std::string(error.what()).substr(path.string().size() + 2);
  }
  return "no fault";
}

std::string fault_of(const std::string& name, const std::string& content) {
  const TemporaryFolder folder;
  write_file_atomically(folder / name, content);
  return fault(folder / name, [&] { const TokenFile file(folder / name); });
}

std::string replaced(std::string text, std::size_t at, const std::string& by) {
  return text.replace(at, by.size(), by);
}

std::int64_t mapped_file_kib() {
  const std::string status = read_file("/proc/self/status");
  const std::size_t at = status.find("RssFile:");
  REQUIRE(at != std::string::npos);
  return std::stoll(status.substr(at + 8));
}

}  // namespace

TEST_CASE("a packed file is 64 bytes of header, then the ids, to the byte") {
  // Made with Python's struct and zlib.
  const std::string golden(
      "TESSTOK\n"
      "\x01\0\0\0"
      "\x02\0\0\0"
      "\x2c\x01\0\0\0\0\0\0"
      "\x03\0\0\0\0\0\0\0"
      "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
      "\x6a\xf3\x3d\x03"
      "\x07\0\x2b\x01\0\0",
      70);
  const TemporaryFolder folder;
  write_file_atomically(folder / "a.tok", golden);
  const TokenFile file(folder / "a.tok");
  CHECK(file.layout().bytes_per_token == 2);
  CHECK(file.layout().vocab == 300);
  CHECK(file.layout().tokens == 3);
  CHECK(read_all(file) == std::vector<std::int32_t>{7, 299, 0});

  const auto header = token_header({.bytes_per_token = 2, .vocab = 300, .tokens = 3});
  CHECK(std::string(reinterpret_cast<const char*>(header.data()), header.size()) ==
        golden.substr(0, 64));
  CHECK(packed_tokens({7, 299, 0}, 2, 300) == golden);
}

TEST_CASE("ids of 4 bytes go beyond 65535, packed and raw") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a.tok", packed_tokens({65536, 128255, 1}, 4));
  write_file_atomically(folder / "a.u32", raw_tokens({65536, 128255, 1}, 4));
  write_file_atomically(folder / "a.u16", raw_tokens({65535, 0, 1}, 2));
  CHECK(read_all(TokenFile(folder / "a.tok")) == std::vector<std::int32_t>{65536, 128255, 1});
  CHECK(read_all(TokenFile(folder / "a.u32")) == std::vector<std::int32_t>{65536, 128255, 1});
  CHECK(read_all(TokenFile(folder / "a.u16")) == std::vector<std::int32_t>{65535, 0, 1});
}

TEST_CASE("a file that is not as long as its header says is refused, whatever is missing") {
  const std::string whole = packed_tokens({1, 2, 3}, 2, 300);
  CHECK(fault_of("a.tok", whole.substr(0, 69)) ==
        "is cut short: it has 69 bytes, its header says 70; copy or pack it again");
  CHECK(fault_of("a.tok", whole + "x") ==
        "is too long: it has 71 bytes, its header says 70; copy or pack it again");
  for (std::size_t length = 1; length < whole.size(); ++length)
    CHECK(fault_of("a.tok", whole.substr(0, length)) != "no fault");
  CHECK(fault_of("a.u16", "abc") ==
        "has 3 bytes, no whole number of tokens; a .u16 file has 2 bytes a token");
  CHECK(fault_of("a.u32", "abcdef") ==
        "has 6 bytes, no whole number of tokens; a .u32 file has 4 bytes a token");
}

TEST_CASE("a header that is damaged, of another version or impossible is told as such") {
  const std::string whole = packed_tokens({1, 2, 3}, 2, 300);
  for (std::size_t at = 12; at < 64; ++at) {
    CAPTURE(at);
    const std::string damaged =
        replaced(whole, at, std::string(1, static_cast<char>(whole[at] ^ 1)));
    CHECK(fault_of("a.tok", damaged).starts_with("its header is damaged: the CRC-32 is "));
  }
  CHECK(fault_of("a.tok", header_bytes({.version = 2})) ==
        "is of version 2 of the format; this trainer reads version 1");
  CHECK(fault_of("a.tok", header_bytes({.bytes_per_token = 3})) ==
        "its header says 3 bytes a token; 2 or 4");
  CHECK(fault_of("a.tok", header_bytes({.vocab = (std::uint64_t{1} << 32) + 1}))
            .starts_with("its header says a vocabulary of 4294967297"));
  CHECK(fault_of("a.tok", header_bytes({.tokens = ~std::uint64_t{0}}))
            .starts_with("its header says 18446744073709551615 tokens"));
  const std::string none =
      "is no token file; trainer pack-bytes makes one of text; raw ids are named .u16 or .u32";
  CHECK(fault_of("a.tok", "x") == none);
  CHECK(fault_of("train.bin", std::string(1000, 'x')) == none);
  CHECK(fault_of("a.u16", whole) ==
        "has the header of a packed file, which raw tokens have not; give it another ending than "
        ".u16");
}

TEST_CASE("what is no readable file is one line") {
  const TemporaryFolder folder;
  const auto open = [&](const std::string& name) {
    return fault(folder / name, [&] { const TokenFile file(folder / name); });
  };
  CHECK(open("none.tok") == "cannot be read: No such file or directory");
  std::filesystem::create_directory(folder / "folder.u16");
  CHECK(open("folder.u16") == "is a folder; name a token file");
  REQUIRE(::mkfifo((folder / "pipe.u16").c_str(), 0666) == 0);
  CHECK(open("pipe.u16") ==
        "is no regular file; tokens are read in any order, so a pipe will not do");
  write_file_atomically(folder / "empty.tok", "");
  write_file_atomically(folder / "empty.u16", "");
  CHECK(open("empty.tok") == "is empty");
  CHECK(open("empty.u16") == "is empty");
  write_file_atomically(folder / "mine.u16", "ab");
  REQUIRE(::chmod((folder / "mine.u16").c_str(), 0) == 0);
  if (::geteuid() != 0) CHECK(open("mine.u16") == "cannot be read: Permission denied");
}

TEST_CASE("an id beyond the vocabulary is told with its position, wherever it is met") {
  const TemporaryFolder folder;
  for (const int bytes : {2, 4}) {
    CAPTURE(bytes);
    const auto path = folder / (bytes == 2 ? "a.u16" : "a.u32");
    write_file_atomically(path, raw_tokens({0, 256, 257, 9, 300}, bytes));
    const TokenFile file(path);
    const std::string expected =
        "token 2 is 257, beyond the vocabulary of 257; data and model need the same tokeniser";
    CHECK(fault(path, [&] { read_all(file, 257); }) == expected);
    std::vector<std::byte> stored(static_cast<std::size_t>(3 * bytes));
    file.fetch(1, stored);
    CHECK(fault(path, [&] { file.require_below(257, 1, stored); }) == expected);
    file.require_below(258, 1, stored);
    CHECK(read_all(file, 301).back() == 300);
  }
  // An id above 2^31 is not negative.
  write_file_atomically(folder / "b.u32", raw_tokens({0xFFFFFFFF}, 4));
  CHECK(fault(folder / "b.u32", [&] {
          read_all(TokenFile(folder / "b.u32"), 300);
        }).starts_with("token 0 is 4294967295, beyond"));
}

TEST_CASE("a file that is changed under a run is an error of the run, never a wrong token") {
  const TemporaryFolder folder;
  const auto path = folder / "a.u16";
  write_file_atomically(path, std::string(100000, '\0'));
  const TokenFile file(path);
  std::filesystem::resize_file(path, 50000);
  std::vector<std::int32_t> ids(10);
  CHECK(fault(path, [&] { file.read(0, ids, 5); }) ==
        "has become 50000 bytes long while it was trained on, from 100000; let nothing write to "
        "it");
  std::vector<std::byte> stored(1000);
  CHECK(fault(path, [&] {
          file.fetch(24900, stored);
        }).starts_with("has become shorter while it was read"));
  // Replacing the file by another one does not matter.
  std::filesystem::resize_file(path, 100000);
  write_file_atomically(path, "other");
  file.read(40000, ids, 5);
}

TEST_CASE("what has been read does not count as memory of the process") {
  const TemporaryFolder folder;
  const auto path = folder / "zeros.u16";
  // The bytes are written, not a hole: then the kernel keeps them in large pages and maps whole
  // ones.
  constexpr std::int64_t kBytes = std::int64_t{64} << 20;
  write_file_atomically(path, std::string(kBytes, '\0'));
  const TokenFile file(path);
  std::vector<std::int32_t> ids(1000);
  const std::int64_t before = mapped_file_kib();
  std::int64_t most = 0;
  for (std::int64_t i = 0; i < 3000; ++i) {
    file.read(i * 7919 * 1000 % (kBytes / 2 - 1000), ids, 1);
    if (i % 100 == 0) most = std::max(most, mapped_file_kib() - before);
  }
  CHECK(most < 8192);
}
