// SPDX-License-Identifier: Apache-2.0
#include "lib/runlog/record.h"

#include <doctest/doctest.h>

#include <string>

#include "lib/base/version.h"

using namespace tessera::runlog;

TEST_CASE("log file names say attempt, restart and rank, and nothing else is one") {
  CHECK(log_file_name(2, 0, 13) == "log.2.0.13.jsonl");
  LogFileName parts;
  CHECK(parse_log_file_name("log.2.1.13.jsonl", parts));
  CHECK(parts.attempt == 2);
  CHECK(parts.restart == 1);
  CHECK(parts.rank == 13);
  for (const char* other :
       {"log.jsonl", "log.1.0.jsonl", "log.1.0.0.json", "log.01.0.0.jsonl", "log.0.0.0.jsonl",
        "log.1.0.0.0.jsonl", "log.-1.0.0.jsonl", "log.1.0.99999999999.jsonl", "log..0.0.jsonl",
        "log.1.0.0.jsonl.tmp.17", ""}) {
    CAPTURE(other);
    CHECK_FALSE(parse_log_file_name(other, parts));
  }
}

TEST_CASE("a line says of which schema it is") {
  CHECK(record_schema(R"({"tessera":2,"t":"step"})") == 2);
  CHECK(record_schema(R"({"tessera":1,"t":"step"})") == 1);
  CHECK(record_schema(R"({"tessera":17,)") == 17);
  for (const char* none : {R"({"tessera":)", R"({"tessera":"2",)", R"({"tessera":2})",
                           R"({"tessera":99999999999,)", R"( {"tessera":2,)", ""}) {
    CAPTURE(none);
    CHECK_FALSE(record_schema(none).has_value());
  }
}

TEST_CASE("every status and kind has a name of its own") {
  CHECK(tessera::to_text(Status::host_oom) == "host-oom");
  CHECK(tessera::from_text<Status>("start-fail") == Status::start_fail);
  CHECK(tessera::all_names<Status>().size() == 17);
  CHECK(tessera::to_text(EndedBy::time_limit) == "time-limit");
  CHECK(tessera::all_names<EndedBy>().size() == 11);
  CHECK(tessera::all_names<Kind>().size() == 12);
}

TEST_CASE("the version moves with the log schema") {
  const std::string version = tessera::kVersion;
  CHECK(version.starts_with("0." + std::to_string(kSchema) + "."));
  CHECK(tessera::version_line("trainer").starts_with("trainer " + version));
}
