// SPDX-License-Identifier: Apache-2.0
#include "lib/runlog/reader.h"

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "tests/lib/runlog/log_text.h"
#include "tests/lib/runlog/samples.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::runlog;

namespace {

Origin origin_named(const std::string& id) {
  return {.project = "tput", .run = "tput--7b-s2048-8g-" + id, .id = id};
}

std::string complete_log(const std::string& id, int measured = 20) {
  test::LogText log(origin_named(id));
  log.add(Kind::header, {{"label", "7b"}, {"user", "kim"}});
  log.add(Kind::model, {{"d_model", 4096}, {"n_layers", 32}});
  test::add_steps(log, 2, measured, 0.5, 98304);
  log.end(test::sample_footer(), test::sample_facts());
  return log.text();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

const std::string kIdA = "0123456789ab";
const std::string kIdB = "ba9876543210";

}  // namespace

TEST_CASE("a whole log gives its header, its footer and the footer's facts") {
  const LogFile file = parse_log_file(complete_log(kIdA), "log");
  REQUIRE(file.logs.size() == 1);
  const Log& log = file.logs[0];
  CHECK(log.origin.run == "tput--7b-s2048-8g-" + kIdA);
  CHECK(log.has_header);
  CHECK(log.facts.label == "7b");
  CHECK(log.footer->steps.tokens == 1966080);
  CHECK(log.facts.n_params == 6658859008);
  CHECK(log.records == 26);
  CHECK(log.missing == 0);
  CHECK(log.steps.empty());
  CHECK(faults(file, log).empty());
  CHECK(parse_log_file(complete_log(kIdA), "log", Depth::all).logs[0].steps.size() == 22);
}

TEST_CASE("without a footer the facts and steps come from the records, not from a row") {
  std::string text = complete_log(kIdA);
  text.resize(text.rfind(R"({"tessera":2,)"));
  const LogFile file = parse_log_file(text, "log");
  const Log& log = file.logs.at(0);
  CHECK_FALSE(log.footer.has_value());
  CHECK(log.steps.size() == 22);
  CHECK(log.facts.d_model == 4096);
  CHECK(log.facts.label == "7b");
  CHECK(log.facts.attempt == 1);
  CHECK_FALSE(log.facts.n_params.has_value());
  CHECK(faults(file, log) == "no footer");
}

TEST_CASE("where a part of the row is lost the facts are those of the records") {
  test::LogText log(origin_named(kIdA));
  log.add(Kind::header, {{"label", "7b"}});
  log.add(Kind::model, {{"d_model", 4096}});
  Facts facts = test::sample_facts();
  facts.biases = std::string(2000, 'b');  // the row needs two records
  log.end(test::sample_footer(), facts);
  const auto lines = lines_of(log.text());
  REQUIRE(lines.size() == 5);
  CHECK(parse_log_file(log.text(), "log").logs.at(0).facts.n_params == 6658859008);
  for (const std::size_t lost : {2U, 3U}) {
    std::string text;
    for (std::size_t i = 0; i < lines.size(); ++i) text += i == lost ? "" : lines[i] + "\n";
    const LogFile file = parse_log_file(text, "log");
    CHECK(file.logs.at(0).footer.has_value());
    CHECK(file.logs[0].facts.d_model == 4096);
    CHECK(file.logs[0].facts.ran<&sweep::Point::seq_len>() == std::nullopt);
    CHECK(faults(file, file.logs[0]) == "1 records lost");
  }
  const Log footer = parse_log_file(lines.back() + "\n", "log").logs.at(0);
  CHECK(footer.footer.has_value());
  CHECK(footer.facts.run == "tput--7b-s2048-8g-" + kIdA);
  CHECK_FALSE(footer.facts.n_params.has_value());
}

TEST_CASE("the row of schema 1 is in its footer") {
  const std::string start = R"({"tessera":1,"t":"footer","project":"tput","run":"tput--a",)"
                            R"("id":"0123456789ab","rep":1,"try":2,"restart":0,"rank":0,"n":)";
  const std::string text =
      seal(start + R"(0,"status":"nan","reason":"step 3","row":{"gpus":8,"label":"a"}})") + "\n";
  const Log log = parse_log_file(text, "log").logs.at(0);
  CHECK(log.footer->status == Status::nan);
  CHECK(log.facts.ran<&sweep::Point::gpus>() == 8);
  CHECK(log.facts.label == "a");
  CHECK(log.facts.attempt == 2);
  CHECK(log.facts.run == "tput--a");
}

TEST_CASE("a log cut at any byte has a footer only if it is whole, and never a wrong step") {
  const std::string text = complete_log(kIdA);
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    CAPTURE(cut);
    const LogFile file = parse_log_file(std::string_view(text).substr(0, cut), "log");
    REQUIRE(file.logs.size() <= 1);
    if (file.logs.empty()) continue;
    // Only the line feed may be missing from a footer that is believed.
    REQUIRE(file.logs[0].footer.has_value() == (cut == text.size() - 1));
    for (const StepSample& step : file.logs[0].steps) REQUIRE(step.seconds == 0.5);
  }
}

TEST_CASE("a log whose beginning is gone at any byte never claims a header") {
  const std::string text = complete_log(kIdA);
  const std::size_t header_end = text.find('\n');
  for (std::size_t cut = 1; cut < text.size(); cut += cut < 2 * header_end ? 1 : 37) {
    CAPTURE(cut);
    const LogFile file = parse_log_file(std::string_view(text).substr(cut), "log");
    for (const Log& log : file.logs) {
      REQUIRE_FALSE(log.has_header);
      REQUIRE(log.missing > 0);
    }
  }
}

TEST_CASE("a flipped bit loses its record and nothing else") {
  const std::string text = complete_log(kIdA, 5);
  std::mt19937 random(17);
  for (int i = 0; i < 2000; ++i) {
    std::string flipped = text;
    const std::size_t at = random() % text.size();
    flipped[at] = static_cast<char>(static_cast<unsigned char>(flipped[at]) ^ (1U << random() % 8));
    CAPTURE(at);
    const LogFile file = parse_log_file(flipped, "log");
    REQUIRE(file.logs.size() == 1);
    // A flipped line feed glues two records, a flip into one cuts a record in two.
    REQUIRE(file.logs[0].records >= 9);
    REQUIRE(file.logs[0].records <= 10 + 1);
    if (file.logs[0].footer) REQUIRE(file.logs[0].footer->steps.tokens == 1966080);
    for (const StepSample& step : file.logs[0].steps) REQUIRE(step.seconds == 0.5);
  }
}

TEST_CASE("two logs interleaved by lines are two logs") {
  const auto a = lines_of(complete_log(kIdA));
  const auto b = lines_of(complete_log(kIdB));
  std::string text;
  for (std::size_t i = 0; i < a.size(); ++i) text += a[i] + "\n" + b[i] + "\n";
  const LogFile file = parse_log_file(text, "out");
  REQUIRE(file.logs.size() == 2);
  CHECK(file.logs[0].origin.id == kIdA);
  CHECK(file.logs[1].origin.id == kIdB);
  for (const Log& log : file.logs) {
    CHECK(log.footer.has_value());
    CHECK(log.missing == 0);
    CHECK(log.records == 26);
  }
}

TEST_CASE("two logs interleaved within lines lose records, and say how many") {
  const std::string a = complete_log(kIdA);
  const std::string b = complete_log(kIdB);
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    std::string text;
    std::size_t at_a = 0;
    std::size_t at_b = 0;
    while (at_a < a.size() || at_b < b.size()) {
      const std::size_t bytes = 1 + random() % 900;
      const bool from_a = at_b >= b.size() || (at_a < a.size() && random() % 2 == 0);
      std::size_t& at = from_a ? at_a : at_b;
      text += (from_a ? a : b).substr(at, bytes);
      at += bytes;
    }
    const LogFile file = parse_log_file(text, "out");
    for (const Log& log : file.logs) {
      if (log.footer) {
        CHECK(log.records + log.missing == 26);
      } else {
        CHECK(log.records + log.missing < 26);
      }
      for (const StepSample& step : log.steps) REQUIRE(step.seconds == 0.5);
    }
  }
}

TEST_CASE("framed records between other output, CRLF and NUL bytes") {
  std::string framed;
  for (const std::string& line : lines_of(complete_log(kIdA)))
    framed += "progress 3/20\r\n" + line + "\r\n\n";
  const LogFile file = parse_log_file(framed, "out");
  CHECK(file.logs.at(0).records == 26);
  CHECK(file.foreign == 26);
  CHECK(file.damaged == 0);

  std::string nuls = std::string(4096, '\0') + "\n" + complete_log(kIdA);
  nuls.insert(nuls.size() - 100, 1, '\0');
  const LogFile holes = parse_log_file(nuls, "out");
  CHECK(holes.foreign == 1);
  CHECK(holes.damaged == 1);
  CHECK_FALSE(holes.logs.at(0).footer.has_value());
}

TEST_CASE("a record glued to other text is not believed") {
  const auto lines = lines_of(complete_log(kIdA, 1));
  const LogFile before = parse_log_file("warning: " + lines[0] + "\n" + lines[1] + "\n", "out");
  CHECK(before.foreign == 1);
  CHECK(before.logs.at(0).missing == 1);
  const LogFile behind = parse_log_file(lines[0] + lines[1] + "\n" + lines[2] + "\n", "out");
  CHECK(behind.damaged == 1);
  CHECK(behind.logs.at(0).missing == 2);
}

TEST_CASE("another schema is noticed and not read") {
  const std::string line = seal(R"({"tessera":3,"t":"header","id":"x"})") + "\n";
  const LogFile file = parse_log_file(line + complete_log(kIdA), "log");
  CHECK(file.newer_schema);
  CHECK(file.damaged == 0);
  CHECK(file.logs.size() == 1);
}

TEST_CASE("sealed records with impossible origins are no records") {
  std::string text;
  for (
      const char* object :
      {R"({"tessera":2,"t":"step"})",
       R"({"tessera":2,"t":"step","id":"a","rep":0,"try":1,"restart":0,"rank":0,"n":0})",
       R"({"tessera":2,"t":"step","id":"a","rep":1,"try":99999999999,"restart":0,"rank":0,"n":0})",
       R"({"tessera":2,"t":"step","id":"a","rep":1,"try":1,"restart":0,"rank":0,"n":-1})",
       R"({"tessera":2,"t":"step","id":"a","rep":1,"try":1,"restart":0,"rank":0,"n":18446744073709551615})",
       R"({"tessera":2,"t":"step","id":7,"rep":1,"try":1,"restart":0,"rank":0,"n":0})",
       R"({"tessera":2,[})"}) {
    text += seal(object) + "\n";
  }
  const LogFile file = parse_log_file(text, "log");
  CHECK(file.logs.empty());
  CHECK(file.damaged == 7);
}

TEST_CASE("records that are there twice are taken once; a second run with the id is a clash") {
  const std::string text = complete_log(kIdA);
  const LogFile twice = parse_log_file(text + text, "log", Depth::all);
  CHECK(twice.logs.at(0).repeated == 26);
  CHECK(twice.logs[0].steps.size() == 22);
  CHECK_FALSE(twice.logs[0].clash);

  test::LogText other({.project = "b", .run = "b--7b-s2048-8g-" + kIdA, .id = kIdA});
  other.add(Kind::header, {{"label", "7b"}});
  CHECK(parse_log_file(text + other.text(), "log").logs.at(0).clash);
}

TEST_CASE("events keep their kind and words, or their numbers") {
  test::LogText log(origin_named(kIdA));
  log.add(Kind::event, {{"kind", "oom"}, {"requested_bytes", 2147483648}, {"free_bytes", 91}});
  log.add(Kind::event, {{"kind", "slow"}, {"text", "disk"}});
  const LogFile file = parse_log_file(log.text(), "log");
  CHECK(file.logs.at(0).events ==
        std::vector<Event>{{"oom", "requested_bytes 2147483648, free_bytes 91"}, {"slow", "disk"}});
}

TEST_CASE("a long log is read at its ends, and whole when its footer is not there") {
  const test::TemporaryFolder folder;
  const std::string text = complete_log(kIdA, 3000);
  REQUIRE(text.size() > 400000);
  write_file_atomically(folder / "log.1.0.0.jsonl", text);
  const LogFile ends = read_log_file(folder / "log.1.0.0.jsonl", Depth::row);
  CHECK_FALSE(ends.whole);
  CHECK(ends.logs.at(0).has_header);
  CHECK(ends.logs[0].footer->steps.tokens == 1966080);
  CHECK(ends.damaged + ends.foreign + ends.logs[0].missing == 0);
  CHECK(read_log_file(folder / "log.1.0.0.jsonl", Depth::all).logs.at(0).steps.size() == 3002);

  // What is no log of one writer may hold another run in its middle.
  write_file_atomically(folder / "captured.txt", text);
  CHECK(read_log_file(folder / "captured.txt", Depth::row).whole);

  // Without its row a footer is not enough.
  std::string no_row = text;
  no_row[no_row.find(R"("t":"row")") + 40] ^= 1;
  write_file_atomically(folder / "log.3.0.0.jsonl", no_row);
  const LogFile damaged = read_log_file(folder / "log.3.0.0.jsonl", Depth::row);
  CHECK(damaged.whole);
  CHECK(damaged.logs.at(0).facts.d_model == 4096);

  write_file_atomically(folder / "log.2.0.0.jsonl", text.substr(0, text.size() - 500));
  const LogFile cut = read_log_file(folder / "log.2.0.0.jsonl", Depth::row);
  CHECK(cut.whole);
  CHECK(cut.logs.at(0).steps.size() == 3002);
}

TEST_CASE("the footer's status alone is what the whole log says, whatever the log has suffered") {
  const test::TemporaryFolder folder;
  const auto path = folder / "log.1.0.0.jsonl";
  int with_status = 0;
  const auto check_as_whole = [&](const std::string& text) {
    std::ofstream(path) << text;
    std::optional<Status> status;
    for (const Log& log : parse_log_file(text, "log").logs) {
      if (log.footer && !status) status = log.footer->status;
    }
    REQUIRE(footer_status(path) == status);
    with_status += status ? 1 : 0;
  };
  const std::string text = complete_log(kIdA, 2);
  const std::size_t footer = text.rfind(R"({"tessera":2,)");
  check_as_whole(text);
  CHECK(with_status == 1);
  for (std::size_t cut = 0; cut < text.size(); cut += cut < footer ? 37 : 1)
    check_as_whole(text.substr(0, cut));
  CHECK(with_status == 2);  // without the last line feed too
  for (std::size_t at = 0; at < text.size(); at += 3) {
    std::string flipped = text;
    flipped[at] ^= 1;
    check_as_whole(flipped);
  }
  check_as_whole(text + "Killed\n");
  check_as_whole(text + "\r\n\n");
  check_as_whole(text.substr(footer));
  check_as_whole("");

  // The status of words, of another kind of record, without figures, and of two runs.
  const auto last_record = [&](Kind kind, const Json& fields) {
    test::LogText log(origin_named(kIdA));
    log.add(Kind::header, {{"label", R"(7b","status":"ok","row":{)"}});
    log.add(kind, fields);
    return log.text();
  };
  const int before = with_status;
  check_as_whole(last_record(Kind::event, {{"status", "ok"}, {"row", {{"gpus", 1}}}}));
  check_as_whole(last_record(Kind::footer, {{"status", "ok"}}));
  check_as_whole(last_record(Kind::footer, {{"status", "ok"}, {"rows", "1"}}));
  check_as_whole(last_record(Kind::footer, {{"status", "ok"}, {"rows", -1}}));
  check_as_whole(last_record(Kind::footer, {{"status", "ok"}, {"rows", 1.5}}));
  check_as_whole(last_record(Kind::footer, {{"status", "fine"}, {"row", {{"gpus", 1}}}}));
  check_as_whole(last_record(Kind::footer, {{"a", {{"status", "ok"}}}, {"row", {{"gpus", 1}}}}));
  check_as_whole(last_record(Kind::footer, {{"reason", R"("status":"ok")"}, {"row", {{"n", 1}}}}));
  test::LogText other({.project = "b", .run = "b--7b-s2048-8g-" + kIdA, .id = kIdA});
  other.add(Kind::header, {{"label", "7b"}});
  other.add(Kind::footer, {{"status", "failed"}, {"row", {{"gpus", 1}}}});
  check_as_whole(text.substr(0, footer) + other.text());
  CHECK(with_status == before);
  check_as_whole(last_record(Kind::footer, {{"status", "host-oom"}, {"row", {{"gpus", 1}}}}));
  CHECK(footer_status(path) == Status::host_oom);
  check_as_whole(last_record(Kind::footer, {{"status", "comm-error"}, {"rows", 1}}));
  CHECK(footer_status(path) == Status::comm_error);
  check_as_whole(last_record(Kind::footer, {{"row", {{"gpus", 1}}}, {"status", "nan"}}));
  CHECK(footer_status(path) == Status::nan);

  // Another attempt's, which somebody copied here, is found as before.
  Origin second = origin_named(kIdA);
  second.attempt = 2;
  test::LogText copied(second);
  copied.add(Kind::footer, {{"status", "oom"}, {"row", {{"gpus", 1}}}});
  check_as_whole(text + copied.text());
  CHECK(footer_status(path) == Status::ok);
  check_as_whole(complete_log(kIdA, 3000));
  CHECK(footer_status(path) == Status::ok);
  CHECK_THROWS_AS(footer_status(folder / "none"), Error);
}

TEST_CASE("an empty file, a line of 100 MB, a folder, a pipe, no file") {
  const test::TemporaryFolder folder;
  write_file_atomically(folder / "empty", "");
  CHECK(read_log_file(folder / "empty", Depth::row).logs.empty());
  {
    std::ofstream out(folder / "long");
    out << R"({"tessera":2,)";
    const std::string megabyte(1 << 20, 'x');
    for (int i = 0; i < 100; ++i) out << megabyte;
    out << "\n" << complete_log(kIdA);
  }
  const LogFile longest = read_log_file(folder / "long", Depth::row);
  CHECK(longest.damaged == 1);
  CHECK(longest.logs.at(0).footer.has_value());
  CHECK_THROWS_WITH_AS(read_log_file(folder.path(), Depth::row),
                       (folder.path().string() + ": cannot be read: Is a directory").c_str(),
                       Error);
  CHECK_THROWS_AS(read_log_file(folder / "none", Depth::row), Error);
  CHECK_THROWS_WITH_AS(read_log_file("/dev/null", Depth::row),
                       "/dev/null: cannot be read: it is no regular file", Error);
}
