// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/run_data.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <set>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "tests/temporary.h"
#include "tests/trainer/data/token_bytes.h"
#include "tests/trainer/run/program.h"
#include "tests/trainer/train/allocations.h"
#include "tests/trainer/train/training.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;
using tessera::test::TemporaryFolder;

namespace {

// Token i is i, so a sequence shows where it begins.
std::vector<std::uint32_t> counting(std::uint32_t tokens) {
  std::vector<std::uint32_t> ids(tokens);
  std::iota(ids.begin(), ids.end(), 0U);
  return ids;
}

class File {
 public:
  File(const std::string& name, const std::string& bytes) : path_(folder_ / name) {
    write_file_atomically(path_, bytes);
    file_ = std::make_shared<const TokenFile>(path_);
  }
  const TokenFile& operator*() const { return *file_; }
  TokenSource source(const DataUse& use) const { return file_tokens(file_, use); }

  void write_byte(std::int64_t at, char byte) const {
    std::fstream(path_, std::ios::in | std::ios::out | std::ios::binary).seekp(at).put(byte);
  }

  std::string fault(const DataUse& use, std::int64_t read_whole = kReadWhole) const {
    try {
      check_tokens(*file_, use, read_whole);
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::failed);
      CHECK(error.where() == path_.string());
      return std::string(error.what()).substr(path_.string().size() + 2);
    }
    return "no fault";
  }

 private:
  TemporaryFolder folder_;
  std::filesystem::path path_;
  std::shared_ptr<const TokenFile> file_;
};

// Returns where the sequences of a step begin in a file of counting tokens, by row.
std::vector<std::int32_t> begins(const TokenSource& source, const DataUse& use, std::int64_t step) {
  std::vector<std::int32_t> all;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(use.seq_len) + 1);
  for (std::int64_t row = 0; row < use.global_batch; ++row) {
    source(step, row, tokens);
    for (std::size_t i = 1; i < tokens.size(); ++i) CHECK(tokens[i] == tokens[i - 1] + 1);
    CHECK(tokens[0] % use.seq_len == 0);
    all.push_back(tokens[0]);
  }
  return all;
}

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

}  // namespace

TEST_CASE("an epoch reads each sequence once, the next one in another order, without a gap") {
  // 13 sequences of 8 and their last target need 105 tokens; 111 tokens hold no more sequences.
  const File file("a.u16", raw_tokens(counting(111), 2));
  const DataUse use{.vocab = 111, .seq_len = 8, .global_batch = 5, .steps = 13, .seed = 3};
  const DataFacts facts = check_tokens(*file, use);
  CHECK(facts.tokens == 111);
  CHECK(facts.epochs == 5);
  const TokenSource source = file.source(use);
  std::vector<std::int32_t> all;
  for (std::int64_t step = 1; step <= use.steps; ++step) {
    const auto rows = begins(source, use, step);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  REQUIRE(all.size() == 65);
  std::set<std::vector<std::int32_t>> orders;
  for (std::size_t epoch = 0; epoch < 5; ++epoch) {
    std::vector<std::int32_t> order(all.begin() + static_cast<std::ptrdiff_t>(13 * epoch),
                                    all.begin() + static_cast<std::ptrdiff_t>(13 * epoch + 13));
    orders.insert(order);
    std::ranges::sort(order);
    for (std::int32_t i = 0; i < 13; ++i) CHECK(order[static_cast<std::size_t>(i)] == 8 * i);
  }
  CHECK(orders.size() == 5);

  DataUse other = use;
  other.seed = 4;
  CHECK(begins(file.source(other), use, 1) != begins(source, use, 1));
}

TEST_CASE("the global batch does not depend on how it is split") {
  // A step of 4 rows equals two steps of 2 rows.
  const File file("a.u16", raw_tokens(counting(2001), 2));
  DataUse use{.vocab = 2001, .seq_len = 10, .global_batch = 4, .steps = 9, .seed = 17};
  const auto four = begins(file.source(use), use, 3);
  use.global_batch = 2;
  const TokenSource source = file.source(use);
  auto two = begins(source, use, 5);
  const auto next = begins(source, use, 6);
  two.insert(two.end(), next.begin(), next.end());
  CHECK(four == two);

  // Returns the loader's tokens for any microbatch size.
  const auto tokens_of = [&](std::int64_t microbatch) {
    memory::Config config = small_setup().memory;
    config.shape.vocab = 2001;
    config.microbatch = microbatch;
    const DataUse all{.vocab = 2001,
                      .seq_len = config.seq_len,
                      .global_batch = config.device_batch,
                      .steps = 9,
                      .seed = 17};
    Loader loader(config, file.source(all));
    std::vector<std::int32_t> batch(static_cast<std::size_t>(loader.elements()));
    loader.fill(2, batch);
    std::vector<std::int32_t> tokens;
    for (std::size_t i = 0; i < loader.microbatches(); ++i) {
      const std::int64_t left = config.device_batch - static_cast<std::int64_t>(i) * microbatch;
      const auto layout = memory::batch_layout(config, std::min(microbatch, left));
      const auto begin = batch.begin() + loader.begin(i) + layout.tokens;
      tokens.insert(tokens.end(), begin, begin + layout.rows);
    }
    return tokens;
  };
  CHECK(tokens_of(1).size() ==
        static_cast<std::size_t>(small_setup().memory.device_batch * small_setup().memory.seq_len));
  CHECK(tokens_of(1) == tokens_of(2));
  CHECK(tokens_of(1) == tokens_of(5));
}

TEST_CASE("reading a row allocates nothing") {
  const File file("a.tok", packed_tokens(counting(5000), 4));
  const DataUse use{.vocab = 5000, .seq_len = 16, .global_batch = 3, .steps = 500, .seed = 1};
  const TokenSource source = file.source(use);
  std::vector<std::int32_t> tokens(17);
  const long before = allocations();
  for (std::int64_t step = 1; step <= 500; ++step) source(step, step % 3, tokens);
  CHECK(allocations() - before == 0);
}

TEST_CASE("faults of the data are told before step one") {
  const DataUse use{.vocab = 257, .seq_len = 16, .global_batch = 1, .steps = 1, .seed = 1};
  CHECK(File("a.u16", raw_tokens(std::vector<std::uint32_t>(16), 2)).fault(use) ==
        "has 16 tokens, a sequence of 16 and its last target need 17; take a longer file or a "
        "smaller seq_len");
  CHECK(File("a.u16", raw_tokens(std::vector<std::uint32_t>(17), 2)).fault(use) == "no fault");
  CHECK(File("a.tok", packed_tokens({}, 2)).fault(use).starts_with("has 0 tokens, "));
  CHECK(File("a.tok", packed_tokens(std::vector<std::uint32_t>(20), 2, 258)).fault(use) ==
        "declares a vocabulary of 258, the model has 257; data and model need the same tokeniser");
  std::vector<std::uint32_t> ids(1000, 5);
  // A small file is checked completely, whatever the run reads of it.
  for (const std::size_t at : {0, 500, 999}) {
    ids[at] = 257;
    CHECK(
        File("a.u16", raw_tokens(ids, 2)).fault(use).find("is 257, beyond the vocabulary of 257") !=
        std::string::npos);
    ids[at] = 256;
    CHECK(File("a.u16", raw_tokens(ids, 2)).fault(use) == "no fault");
    // The vocabulary that the file declares counts too.
    CHECK(File("a.tok", packed_tokens(ids, 2, 256))
              .fault(use)
              .find("is 256, beyond the vocabulary of 256") != std::string::npos);
    ids[at] = 5;
  }
}

TEST_CASE("the fingerprint is the CRC-32 of the tokens, header or not") {
  const DataUse use{.vocab = 1000, .seq_len = 16, .global_batch = 1, .steps = 1, .seed = 1};
  const std::string raw = raw_tokens(counting(999), 2);
  CHECK(check_tokens(*File("a.u16", raw), use).crc32 == crc32(raw));
  CHECK(check_tokens(*File("a.tok", packed_tokens(counting(999), 2, 999)), use).crc32 ==
        crc32(raw));
  std::string other = raw;
  other[1000] = 1;
  CHECK(check_tokens(*File("a.u16", other), use).crc32 != crc32(raw));
}

TEST_CASE("of a large file, pieces and every sequence of the run are looked at") {
  // The file has 5.5 MiB; its fingerprint covers 3 pieces of 1 MiB: 0 to 1, 2.25 to 3.25, 4.5 to
  // 5.5 MiB.
  std::string bytes(static_cast<std::size_t>(5 * kMiB + kMiB / 2), '\0');
  for (std::size_t i = 0; i < bytes.size(); i += 2) bytes[i] = static_cast<char>(i / 2 % 251);
  const auto piece = [&](std::int64_t begin) {
    return bytes.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(kMiB));
  };
  const std::string pieces = piece(0) + piece(9 * kMiB / 4) + piece(9 * kMiB / 2);
  const DataUse use{.vocab = 257, .seq_len = 512, .global_batch = 4, .steps = 50, .seed = 7};
  const File file("a.u16", bytes);
  CHECK(check_tokens(*file, use, 3 * kMiB).crc32 == crc32(pieces));
  CHECK(check_tokens(*file, use, 5 * kMiB).crc32 != crc32(bytes));
  CHECK(check_tokens(*file, use, 6 * kMiB).crc32 == crc32(bytes));

  // The run reads 200 rows of 5631 sequences. A wrong id is found where the run reads, and only
  // there.
  const std::int64_t sequences = (static_cast<std::int64_t>(bytes.size()) / 2 - 1) / 512;
  CHECK(sequences == 5631);
  std::set<std::int64_t> used;
  {
    // The same seed reads the same sequences of another file of the same length, in which every id
    // differs.
    const auto numbers = counting(static_cast<std::uint32_t>(bytes.size() / 2));
    const File counted("b.u32", raw_tokens(numbers, 4));
    DataUse all = use;
    all.vocab = static_cast<std::int64_t>(numbers.size());
    const TokenSource places = counted.source(all);
    for (std::int64_t step = 1; step <= use.steps; ++step) {
      for (const std::int32_t begin : begins(places, all, step)) used.insert(begin / 512);
    }
  }
  CHECK(used.size() == 200);
  const auto in_piece = [&](std::int64_t token) {
    const std::int64_t at = 2 * token;
    return at < kMiB || (at >= 9 * kMiB / 4 && at < 13 * kMiB / 4) || at >= 9 * kMiB / 2;
  };
  int found = 0;
  int unread = 0;
  for (std::int64_t sequence = 0; sequence < sequences; sequence += 13) {
    const std::int64_t token = sequence * 512 + 300;
    const bool read = used.contains(sequence) || in_piece(token);
    file.write_byte(2 * token + 1, 2);
    CHECK((file.fault(use, 3 * kMiB) != "no fault") == read);
    ++(read ? found : unread);
    // A run of more than half of the sequences checks all of them, in order.
    if (unread == 1 && !read) {
      DataUse more = use;
      more.steps = 705;
      CHECK(file.fault(more, 3 * kMiB) != "no fault");
    }
    file.write_byte(2 * token + 1, 0);
  }
  CHECK(found > 20);
  CHECK(unread > 20);
}

TEST_CASE("the point names synthetic tokens or a file") {
  sweep::Point point = small_spec("").point;
  CHECK_FALSE(open_data(point).file.has_value());
  const TemporaryFolder folder;
  write_file_atomically(folder / "a.u16", raw_tokens(counting(129), 2));
  point.data = folder / "a.u16";
  const RunData data = open_data(point);
  REQUIRE(data.file.has_value());
  CHECK(data.file->tokens == 129);
  // 6 steps of 5 sequences of 16 tokens; the file has 8 sequences.
  CHECK(data.file->epochs == 30.0 / 8);
  std::vector<std::int32_t> tokens(17);
  data.tokens(1, 0, tokens);
  CHECK(tokens[16] == tokens[0] + 16);
}
