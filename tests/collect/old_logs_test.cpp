// SPDX-License-Identifier: Apache-2.0
// What older programs wrote is read as they read it (tests/data/schema1/README.md).
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "collect/collection.h"
#include "collect/writer_csv.h"
#include "lib/base/file.h"

using namespace tessera;

namespace {

const std::filesystem::path kOld = "tests/data/schema1";

}  // namespace

TEST_CASE("logs and ledgers of schema 1 give the rows that they gave when they were written") {
  for (const std::string project : {"old", "queue", "golden"}) {
    CAPTURE(project);
    collect::Request request;
    request.projects = {{.workspace = kOld, .name = project}};
    request.catalogues.built_in = hardware::built_in_catalogue();
    const collect::Collection collection = collect::collect_rows(request);
    CHECK(collect::csv(collection.rows) == read_file(kOld / (project + ".csv")));
  }
}

TEST_CASE("each attempt of schema 1 has the status and the reason that it had") {
  std::string text;
  for (const std::string project : {"old", "queue", "golden"}) {
    const auto states = ledger::run_states(ledger::read_ledger(kOld / project));
    collect::Notes notes;
    for (const collect::RunFiles& files : collect::find_project(kOld, project)) {
      const auto run = collect::read_run(files, notes);
      REQUIRE(run.has_value());
      for (const collect::Attempt& attempt : run->attempts) {
        const ledger::AttemptState* submitted = nullptr;
        if (const auto state = states.find(run->run); state != states.end()) {
          const auto found = std::ranges::find(state->second.attempts, attempt.attempt,
                                               &ledger::AttemptState::attempt);
          if (found != state->second.attempts.end()) submitted = &*found;
        }
        const collect::Outcome outcome = collect::outcome_of(attempt, submitted);
        text += fmt::format("{} attempt {}: {} ({})\n", run->run, attempt.attempt,
                            to_text(outcome.status), outcome.reason);
      }
    }
    CHECK(notes.lines().empty());
  }
  CHECK(text == read_file(kOld / "attempts.txt"));
}
