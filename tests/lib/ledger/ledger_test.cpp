// SPDX-License-Identifier: Apache-2.0
#include "lib/ledger/ledger.h"

#include <doctest/doctest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <fstream>

#include "lib/base/crc32.h"
#include "lib/base/error.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::ledger;

namespace {

const RunRef kRun{.run = "tput--a-s64-1g-0123456789ab", .id = "0123456789ab"};

Entry entry_of(Op op, const RunRef& ref = kRun) {
  Entry entry;
  entry.op = op;
  entry.cluster = "local";
  entry.runs = {ref};
  return entry;
}

std::filesystem::path file_of(const test::TemporaryFolder& folder) {
  return folder / ".tessera/ledger/kim@n1.jsonl";
}

void overwrite(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

}  // namespace

TEST_CASE("what is appended is read back, all users' files together") {
  const test::TemporaryFolder folder;
  CHECK(read_ledger(folder.path()).entries.empty());
  Ledger kim(folder.path(), "kim", "n1");
  Entry plan;
  plan.op = Op::plan;
  plan.points = {{.id = kRun.id, .run = kRun.run, .label = "a", .repeats = 3}};
  plan.dropped = {{.label = "b", .reason = "batch", .detail = "12 % 8"}};
  kim.append(plan);
  kim.append(entry_of(Op::intent));
  Ledger lee(folder.path(), "lee", "n1");
  Entry final_entry = entry_of(Op::final);
  final_entry.status = runlog::Status::oom;
  final_entry.ended_by = runlog::EndedBy::out_of_memory;
  final_entry.reason = "host memory";
  final_entry.queue_s = 1.5;
  lee.append(final_entry);
  const Contents contents = read_ledger(folder.path());
  REQUIRE(contents.entries.size() == 3);
  CHECK(contents.damage.empty());
  CHECK(contents.entries[0].points == plan.points);
  CHECK(contents.entries[0].dropped == plan.dropped);
  CHECK(contents.entries[0].user == "kim");
  CHECK(contents.entries[2].user == "lee");
  CHECK(contents.entries[2].status == runlog::Status::oom);
  CHECK(contents.entries[2].ended_by == runlog::EndedBy::out_of_memory);
  const RunState state = run_states(contents).at(kRun.run);
  CHECK(state.attempts.at(0).ended_by == runlog::EndedBy::out_of_memory);
  CHECK(contents.entries[2].queue_s == 1.5);
}

TEST_CASE("what ended an attempt is typed; only a line that lacks it is asked for its words") {
  const test::TemporaryFolder folder;
  const Ledger ledger(folder.path(), "kim", "n1");
  const auto ended_by = [&](const std::string& members) {
    overwrite(file_of(folder), seal(R"({"l":1,"op":"final",)" + members + "}") + "\n");
    return read_ledger(folder.path()).entries.at(0).ended_by;
  };
  using runlog::EndedBy;
  CHECK(ended_by(R"("status":"partial","ended_by":"preempted","reason":"interrupted")") ==
        EndedBy::preempted);
  CHECK(ended_by(R"("status":"partial","ended_by":"a later word","reason":"interrupted")") ==
        EndedBy::unknown);
  CHECK(ended_by(R"("status":"partial","reason":"interrupted")") == EndedBy::interrupted);
  CHECK(ended_by(R"("status":"partial","reason":"cancelled by its user")") == EndedBy::cancelled);
  CHECK(ended_by(R"("status":"cancelled","reason":"by its user")") == EndedBy::cancelled);
  CHECK(ended_by(R"("status":"failed","reason":"ended by signal 9")") == EndedBy::error);
}

TEST_CASE("plan lines keep the point and a drop's values; lines without them still read") {
  const test::TemporaryFolder folder;
  sweep::Point point;
  point.model = {.d_model = 64,
                 .n_layers = 2,
                 .n_heads = 2,
                 .n_kv_heads = 1,
                 .head_dim = 48,
                 .ffn = 128,
                 .vocab = 256};
  point.lr = 1.2e-4;
  point.seq_len = 64;
  point.global_batch = 4;
  point.microbatch_size = sweep::kAutoMicrobatch;
  point.seed = 123456789012;
  point.env = {{"FOO", "a \"b\""}};
  Entry plan;
  plan.points = {{.id = kRun.id, .run = kRun.run, .label = "a", .repeats = 1, .point = point}};
  plan.dropped = {{.label = "a",
                   .reason = "constraint",
                   .detail = "no a at 64",
                   .values = {{"seq_len", "64"}, {"env.FOO", "b"}}}};
  Ledger(folder.path(), "kim", "n1").append(plan);
  const Contents contents = read_ledger(folder.path());
  REQUIRE(contents.entries.size() == 1);
  CHECK(contents.entries[0].points == plan.points);
  CHECK(contents.entries[0].dropped == plan.dropped);
  CHECK(read_file(file_of(folder)).find("\"point\":{\"cluster\":\"local\",\"env\":{") !=
        std::string::npos);
  // As older versions wrote it, and as a later one may.
  overwrite(
      file_of(folder),
      seal(
          R"({"l":1,"op":"plan","points":[{"id":"0123456789ab","run":"r","label":"a","repeats":2}],)"
          R"("dropped":[{"label":"b","reason":"batch","detail":"12 % 8 gpus=8"}]})") +
          "\n" +
          seal(R"({"l":1,"op":"plan","points":[{"id":"0123456789ac","run":"s","label":"a",)"
               R"("point":{"new_axis":1}}]})") +
          "\n");
  const Contents others = read_ledger(folder.path());
  CHECK(others.damage.empty());
  REQUIRE(others.entries.size() == 2);
  CHECK_FALSE(others.entries[0].points[0].point);
  CHECK(others.entries[0].dropped[0].values.empty());
  CHECK(others.entries[1].points[0].id == "0123456789ac");
  CHECK_FALSE(others.entries[1].points[0].point);
}

TEST_CASE("a torn last line is cut off by the next writer, at whatever byte it was torn") {
  const test::TemporaryFolder folder;
  {
    Ledger(folder.path(), "kim", "n1").append(entry_of(Op::intent));
  }
  {
    Ledger(folder.path(), "kim", "n1").append(entry_of(Op::accepted));
  }
  const std::string whole = read_file(file_of(folder));
  const std::size_t first = whole.find('\n') + 1;
  for (std::size_t cut = first; cut < whole.size(); ++cut) {
    overwrite(file_of(folder), whole.substr(0, cut));
    CHECK(read_ledger(folder.path()).entries.size() == 1);
    CHECK(read_ledger(folder.path()).damage.empty());
    Ledger(folder.path(), "kim", "n1").append(entry_of(Op::final));
    const Contents contents = read_ledger(folder.path());
    REQUIRE(contents.entries.size() == 2);
    CHECK(contents.entries[1].op == Op::final);
    CHECK(contents.damage.empty());
  }
}

TEST_CASE("a damaged line is named with its file and line, and nothing is submitted on top of it") {
  const test::TemporaryFolder folder;
  {
    Ledger ledger(folder.path(), "kim", "n1");
    for (const Op op : {Op::intent, Op::accepted, Op::final}) ledger.append(entry_of(op));
  }
  std::string content = read_file(file_of(folder));
  content[content.find('\n') + 20] ^= 1;
  overwrite(file_of(folder), content);
  const Contents contents = read_ledger(folder.path());
  CHECK(contents.entries.size() == 2);
  REQUIRE(contents.damage.size() == 1);
  try {
    require_undamaged(contents);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::conflict);
    CHECK(error.where() == file_of(folder).string() + ":2");
  }
}

TEST_CASE("the states of a run follow its entries, attempt by attempt") {
  Contents contents;
  RunRef second = kRun;
  second.attempt = 2;
  contents.entries = {entry_of(Op::intent), entry_of(Op::accepted), entry_of(Op::final),
                      entry_of(Op::cancel), entry_of(Op::intent, second)};
  contents.entries[1].job = "4711";
  contents.entries[2].status = runlog::Status::failed;
  const auto states = run_states(contents);
  REQUIRE(states.size() == 1);
  const RunState& state = states.at(kRun.run);
  REQUIRE(state.attempts.size() == 2);
  CHECK(state.attempts[0].last == Op::final);
  CHECK(state.attempts[0].job == "4711");
  CHECK(state.attempts[0].status == runlog::Status::failed);
  CHECK(state.attempts[1].last == Op::intent);
}

TEST_CASE("a full disk is an error, and what was written before stays whole") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: mounting a small file system needs root");
    return;
  }
  const test::TemporaryFolder folder;
  if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=16k") != 0) {
    MESSAGE("skipped: no tmpfs can be mounted here");
    return;
  }
  {
    Ledger ledger(folder.path(), "kim", "n1");
    int written = 0;
    bool full = false;
    for (; written < 1000 && !full; ++written) {
      try {
        ledger.append(entry_of(Op::intent));
      } catch (const Error& error) {
        CHECK(error.code() == ExitCode::io);
        CHECK(std::string(error.what()).find("No space left") != std::string::npos);
        full = true;
        --written;
      }
    }
    CHECK(full);
    const Contents contents = read_ledger(folder.path());
    CHECK(contents.entries.size() == static_cast<std::size_t>(written));
    CHECK(contents.damage.empty());
  }
  ::umount(folder.path().c_str());
}

TEST_CASE("runs of a job keep their places in it, given or by their order; times and hosts stay") {
  const test::TemporaryFolder folder;
  Ledger ledger(folder.path(), "kim", "n1");
  const auto ref = [](const std::string& run) { return RunRef{.run = run, .id = kRun.id}; };
  std::vector<Entry> entries(2);
  entries[0] = entry_of(Op::intent, ref("a"));
  entries[0].runs.push_back(ref("b"));
  entries[1] = entry_of(Op::intent, ref("c"));
  entries[1].runs.push_back(ref("d"));
  entries[1].places = {1, 3};
  entries[1].utc = "2026-11-29T12:41:11.204Z";
  entries[1].host = "n7";
  ledger.append(entries);
  const Contents contents = read_ledger(folder.path());
  REQUIRE(contents.entries.size() == 2);
  CHECK(contents.damage.empty());
  const auto states = run_states(contents);
  CHECK(states.at("a").attempts[0].index == 0);
  CHECK(states.at("b").attempts[0].index == 1);
  CHECK(states.at("c").attempts[0].index == 1);
  CHECK(states.at("d").attempts[0].index == 3);
  CHECK(states.at("a").attempts[0].host == "n1");
  CHECK(states.at("d").attempts[0].host == "n7");
  CHECK(states.at("d").attempts[0].since_utc == "2026-11-29T12:41:11.204Z");
  Entry wrong = entries[1];
  wrong.places = {1};
  ledger.append(wrong);
  CHECK(read_ledger(folder.path()).damage.size() == 1);
}
