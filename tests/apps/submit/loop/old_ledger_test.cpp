// SPDX-License-Identifier: Apache-2.0
// What a submit does about runs that an older one handed over (tests/data/schema1/README.md).
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "apps/submit/loop/select.h"
#include "lib/base/file.h"

using namespace tessera;
using submit::Only;
using submit::Verdict;

namespace {

const std::filesystem::path kOld = "tests/data/schema1";

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::start:
      return "started";
    case Verdict::running:
      return "under way";
    default:
      return "left";
  }
}

}  // namespace

TEST_CASE("of a ledger of older programs the same runs are started again as they started") {
  std::string text;
  for (const std::string project : {"old", "queue"}) {
    const auto states = ledger::run_states(ledger::read_ledger(kOld / project));
    std::vector<ledger::PlannedPoint> planned;
    for (const auto& [run, state] : states)
      if (state.ref.repeat == 1) planned.push_back({.id = state.ref.id, .run = run, .label = "a"});
    for (const Only only : {Only::missing, Only::failed}) {
      const std::string user = project == "old" ? "root" : "kim";
      for (const submit::Choice& choice : submit::select(planned, states, {.only = only}, user))
        text += fmt::format("{} {}: {}\n", to_text(only), choice.ref.run, name_of(choice.verdict));
    }
  }
  CHECK(text == read_file(kOld / "started.txt"));
}
