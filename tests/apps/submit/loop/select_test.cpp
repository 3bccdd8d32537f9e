// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/loop/select.h"

#include <doctest/doctest.h>

using namespace tessera;
using namespace tessera::submit;
using ledger::Op;
using runlog::EndedBy;
using runlog::Status;

namespace {

const std::vector<ledger::PlannedPoint> kOne{
    {.id = "0123456789ab", .run = "p--a-0123456789ab", .label = "a"}};

ledger::AttemptState ended(int attempt, Status status, const std::string& reason = "",
                           const std::string& user = "kim") {
  ledger::AttemptState state;
  state.attempt = attempt;
  state.last = Op::final;
  state.user = user;
  state.status = status;
  state.ended_by = runlog::ended_by_of(status);
  state.reason = reason;
  return state;
}

Choice choose(std::vector<ledger::AttemptState> attempts, Only only) {
  std::map<std::string, ledger::RunState> states;
  states[kOne[0].run] = {.ref = {.run = kOne[0].run, .id = kOne[0].id},
                         .attempts = std::move(attempts)};
  return select(kOne, states, {.only = only}, "kim").at(0);
}

}  // namespace

TEST_CASE("what was never run is started by missing and all, not by failed and oom") {
  CHECK(select(kOne, {}, {.only = Only::missing}, "kim").at(0).verdict == Verdict::start);
  CHECK(select(kOne, {}, {.only = Only::missing}, "kim").at(0).ref.attempt == 1);
  CHECK(select(kOne, {}, {.only = Only::all}, "kim").at(0).verdict == Verdict::start);
  CHECK(select(kOne, {}, {.only = Only::failed}, "kim").at(0).verdict == Verdict::unselected);
  CHECK(select(kOne, {}, {.only = Only::oom}, "kim").at(0).verdict == Verdict::unselected);
}

TEST_CASE("every status is started by exactly the selections that name it") {
  struct Case {
    Status status;
    EndedBy ended_by;
    bool missing, failed, oom;
  };
  for (const Case& c :
       {Case{Status::ok, EndedBy::completed, false, false, false},
        Case{Status::partial, EndedBy::unknown, false, false, false},
        Case{Status::partial, EndedBy::interrupted, true, false, false},
        Case{Status::partial, EndedBy::cancelled, true, false, false},
        Case{Status::partial, EndedBy::time_limit, false, false, false},
        Case{Status::partial, EndedBy::node_fail, false, false, false},
        Case{Status::failed, EndedBy::interrupted, true, true, false},
        Case{Status::failed, EndedBy::error, false, true, false},
        Case{Status::oom, runlog::ended_by_of(Status::oom), false, true, true},
        Case{Status::host_oom, runlog::ended_by_of(Status::host_oom), false, true, true},
        Case{Status::nan, runlog::ended_by_of(Status::nan), false, true, false},
        Case{Status::start_fail, runlog::ended_by_of(Status::start_fail), false, true, false},
        Case{Status::timeout, runlog::ended_by_of(Status::timeout), false, true, false},
        Case{Status::node_fail, runlog::ended_by_of(Status::node_fail), false, true, false},
        Case{Status::preempted, runlog::ended_by_of(Status::preempted), false, true, false},
        Case{Status::comm_error, runlog::ended_by_of(Status::comm_error), false, true, false},
        Case{Status::cancelled, runlog::ended_by_of(Status::cancelled), true, false, false},
        Case{Status::missing, runlog::ended_by_of(Status::missing), true, false, false},
        Case{Status::skipped, runlog::ended_by_of(Status::skipped), false, false, false},
        Case{Status::unknown, runlog::ended_by_of(Status::unknown), false, false, false}}) {
    CAPTURE(to_text(c.status));
    CAPTURE(to_text(c.ended_by));
    // Whatever its reason says.
    for (const char* reason : {"", "interrupted", "cancelled by its user"}) {
      CAPTURE(reason);
      const auto starts = [&](Only only) {
        ledger::AttemptState attempt = ended(1, c.status, reason);
        attempt.ended_by = c.ended_by;
        return choose({attempt}, only).verdict == Verdict::start;
      };
      CHECK(starts(Only::missing) == c.missing);
      CHECK(starts(Only::failed) == c.failed);
      CHECK(starts(Only::oom) == c.oom);
      CHECK(starts(Only::all));
    }
  }
}

TEST_CASE("a later failed attempt never hides an ok one") {
  const Choice choice =
      choose({ended(1, Status::failed), ended(2, Status::ok), ended(3, Status::oom)}, Only::failed);
  CHECK(choice.verdict == Verdict::unselected);
  CHECK(choice.status == Status::ok);
  CHECK(choose({ended(1, Status::oom), ended(2, Status::failed, "x")}, Only::oom).verdict ==
        Verdict::unselected);
  CHECK(choose({ended(1, Status::ok), ended(3, Status::ok)}, Only::all).ref.attempt == 4);
}

TEST_CASE("what is passed over by default is done, ok or not; by name it is not selected") {
  for (const Status status : {Status::ok, Status::oom, Status::start_fail}) {
    CHECK(choose({ended(1, status)}, Only::missing).verdict == Verdict::done);
    CHECK(choose({ended(1, status)}, Only::missing).status == status);
  }
  CHECK(choose({ended(1, Status::start_fail)}, Only::oom).verdict == Verdict::unselected);
}

TEST_CASE("an open attempt is running, whatever is asked for") {
  ledger::AttemptState open;
  open.attempt = 2;
  open.last = Op::accepted;
  open.user = "kim";
  for (const Only only : {Only::missing, Only::failed, Only::all}) {
    CHECK(choose({ended(1, Status::failed), open}, only).verdict == Verdict::running);
  }
}

TEST_CASE("another user's runs are not touched") {
  CHECK(choose({ended(1, Status::failed, "", "lee")}, Only::all).verdict == Verdict::others);
}

TEST_CASE("each repeat is a run of its own") {
  auto planned = kOne;
  planned[0].repeats = 3;
  std::map<std::string, ledger::RunState> states;
  states["p--a-0123456789ab-r2"].attempts = {ended(1, Status::ok)};
  const auto choices = select(planned, states, {.only = Only::missing}, "kim");
  REQUIRE(choices.size() == 3);
  CHECK(choices[0].verdict == Verdict::start);
  CHECK(choices[1].verdict == Verdict::done);
  CHECK(choices[2].ref.run == "p--a-0123456789ab-r3");
  CHECK(choices[2].ref.repeat == 3);
}

TEST_CASE("what nobody knows the end of is started only by its name or by force") {
  std::map<std::string, ledger::RunState> states;
  states[kOne[0].run].attempts = {ended(1, Status::unknown)};
  const auto starts = [&](const Selection& selection) {
    return select(kOne, states, selection, "kim").at(0).verdict == Verdict::start;
  };
  CHECK_FALSE(starts({}));
  CHECK_FALSE(starts({.only = Only::failed}));
  CHECK(starts({.only = Only::unknown}));
  CHECK(starts({.force = true}));
  states[kOne[0].run].attempts = {ended(1, Status::failed)};
  CHECK_FALSE(starts({.only = Only::unknown}));
}

TEST_CASE("stale is what another build measured; what is not known is not stale") {
  std::map<std::string, ledger::RunState> states;
  auto& attempts = states[kOne[0].run].attempts;
  attempts = {ended(1, Status::ok)};
  const auto starts = [&](const std::string& build) {
    return select(kOne, states, {.only = Only::stale, .build = build}, "kim").at(0).verdict ==
           Verdict::start;
  };
  CHECK_FALSE(starts("0.1.0 b"));
  attempts[0].build = "0.1.0 a";
  CHECK(starts("0.1.0 b"));
  CHECK_FALSE(starts("0.1.0 a"));
  CHECK_FALSE(starts(""));
  attempts[0].status = Status::failed;
  CHECK_FALSE(starts("0.1.0 b"));
}

TEST_CASE("a run that had as many attempts as it may is passed over") {
  std::map<std::string, ledger::RunState> states;
  states[kOne[0].run].attempts = {ended(1, Status::failed), ended(2, Status::failed)};
  const auto verdict = [&](int most) {
    return select(kOne, states, {.only = Only::failed, .most_attempts = most}, "kim").at(0).verdict;
  };
  CHECK(verdict(0) == Verdict::start);
  CHECK(verdict(3) == Verdict::start);
  CHECK(verdict(2) == Verdict::exhausted);
}
