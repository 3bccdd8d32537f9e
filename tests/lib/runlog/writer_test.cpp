// SPDX-License-Identifier: Apache-2.0
#include "lib/runlog/writer.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "lib/base/crc32.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::runlog;

namespace {

const Origin kOrigin{.project = "tput", .run = "tput--a-s64-1g-0123456789ab", .id = "0123456789ab"};

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::istringstream in(read_file(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("each record is a sealed line with the common members and a number of its own") {
  const test::TemporaryFolder folder;
  Writer writer = Writer::to_folder(folder.path(), kOrigin);
  writer.write(Kind::header, {{"label", "a"}, {"user", "kim"}});
  writer.write(Kind::step, {{"step", 1}, {"seconds", 0.5}});
  const auto lines = lines_of(folder / "log.1.0.0.jsonl");
  REQUIRE(lines.size() == 2);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    CHECK(record_schema(lines[i]) == kSchema);
    CHECK(seal_holds(lines[i]));
    const Json record = Json::parse(lines[i]);
    CHECK(record["n"] == i);
    CHECK(record["id"] == "0123456789ab");
    CHECK(record["try"] == 1);
    CHECK(record["mono_s"].get<double>() >= 0);
    CHECK(record.contains("utc") == (i == 0));
  }
  CHECK(writer.facts().label == "a");
  CHECK(writer.facts().run == kOrigin.run);
}

TEST_CASE("a log that exists is never overwritten: the next free attempt is taken") {
  const test::TemporaryFolder folder;
  Writer first = Writer::to_folder(folder.path(), kOrigin);
  first.write(Kind::header, {{"label", "first"}});
  Writer second = Writer::to_folder(folder.path(), kOrigin);
  second.write(Kind::header, {{"label", "second"}});
  CHECK(second.origin().attempt == 2);
  CHECK(Json::parse(lines_of(folder / "log.1.0.0.jsonl").at(0))["label"] == "first");
  CHECK(Json::parse(lines_of(folder / "log.2.0.0.jsonl").at(0))["try"] == 2);
}

TEST_CASE("a log that cannot be written is an error with path and cause") {
  const test::TemporaryFolder folder;
  try {
    Writer::to_folder(folder / "none", kOrigin);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::log_not_writable);
    CHECK(std::string(error.what())
              .find("log.1.0.0.jsonl: the run log cannot be written: No such file") !=
          std::string::npos);
  }
}

TEST_CASE("a record larger than one pipe write is a fault, not a torn line") {
  const test::TemporaryFolder folder;
  Writer writer = Writer::to_folder(folder.path(), kOrigin);
  CHECK_THROWS_AS(writer.write(Kind::event, {{"text", std::string(5000, 'x')}}), Error);
  CHECK(lines_of(folder / "log.1.0.0.jsonl").empty());
}

TEST_CASE("a log ends with the row of all records before it, and the footer") {
  const test::TemporaryFolder folder;
  Writer writer = Writer::to_folder(folder.path(), kOrigin);
  writer.write(Kind::header, {{"label", "a"}, {"user", "kim"}});
  writer.write(Kind::effective, {{"gpus", 8}});
  writer.end({.status = Status::nan, .reason = "step 3"});
  const auto lines = lines_of(folder / "log.1.0.0.jsonl");
  REQUIRE(lines.size() == 4);
  const Json row = Json::parse(lines[2]);
  CHECK(row["t"] == "row");
  CHECK(row["part"] == 1);
  CHECK(row["row"].dump().starts_with(R"({"label":"a","user":"kim",)"));
  CHECK(row["row"]["gpus"] == 8);
  const Json footer = Json::parse(lines[3]);
  CHECK(footer["t"] == "footer");
  CHECK(footer["rows"] == 1);
  CHECK(footer["project"] == "tput");
}

TEST_CASE("invalid UTF-8 still makes valid JSON") {
  const test::TemporaryFolder folder;
  Writer writer = Writer::to_folder(folder.path(), kOrigin);
  writer.write(Kind::event, {{"text", "a\xff"}});
  CHECK(Json::parse(lines_of(folder / "log.1.0.0.jsonl").at(0))["text"] == "a\xEF\xBF\xBD");
}
