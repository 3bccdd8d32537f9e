// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/loop/job_poller.h"

#include <doctest/doctest.h>

#include <optional>
#include <set>

#include "lib/base/process.h"
#include "tests/apps/submit/loop/place.h"

using namespace tessera;
using namespace tessera::submit;
using cluster::Submission;
using ledger::Op;
using runlog::Status;
using test::Phase;
using test::Place;

TEST_CASE("with --wait it stays until all have ended, as their logs tell") {
  Place place;
  place.options.wait = true;
  place.end_all(Status::ok);
  std::vector<std::string> ended;
  place.events.ended = [&](const std::string& run, const cluster::Outcome& outcome) {
    ended.push_back(run);
    CHECK(outcome.status == Status::ok);
  };
  const SubmitReport report = place.submit(3);
  CHECK(report.ok == 3);
  CHECK(report.on_cluster == 0);
  CHECK(ended.size() == 3);
  CHECK(place.entries(Op::final).size() == 3);
  CHECK(place.submit(3).ok_before == 3);
}

TEST_CASE("runs of an allocation end one by one; those whose turn never came are missing") {
  Place place;
  place.options.pack_s = 1000;
  place.options.time_of = [](const sweep::Planned&) {
    return RunTime{.seconds = 60, .limit_s = 300};
  };
  SubmitReport report = place.submit(3);
  CHECK(report.started == 3);
  CHECK(report.jobs == 1);
  const auto intents = place.entries(Op::intent);
  REQUIRE(intents.size() == 1);
  CHECK(intents[0].runs.size() == 3);
  CHECK(intents[0].name == intents[0].runs[0].run);
  CHECK(place.scheduler.jobs["101"].job.time_limit_s == 900);

  place.write_log(Place::run_of(1), Status::ok);
  auto& state = place.scheduler.jobs["101"].state;
  state.phase = Phase::running;
  place.submit(3);
  CHECK(place.entries(Op::final).size() == 1);

  place.write_log(Place::run_of(2), Status::nan);
  state.phase = Phase::ended;
  state.end = Status::timeout;
  state.end_reason = "TIMEOUT after 00:15:00";
  report = place.submit(3);
  CHECK(report.ok_before == 1);
  CHECK(report.not_ok_before[Status::nan] == 1);
  CHECK(report.started == 1);  // the third is run again
  const auto states = place.states();
  CHECK(states.at(Place::run_of(3)).attempts[0].status == Status::missing);
  CHECK(states.at(Place::run_of(3)).attempts[0].reason ==
        "its allocation ended before its turn: TIMEOUT after 00:15:00");
}

TEST_CASE(
    "runs of a cancelled allocation whose turn never came are cancelled, as those alone are") {
  Place place;
  place.options.pack_s = 3600;
  place.options.time_of = [](const sweep::Planned&) {
    return RunTime{.seconds = 120, .limit_s = 300};
  };
  CHECK(place.submit(3).jobs == 1);
  {
    ledger::Ledger ledger(place.project(), user_name(), host_name());
    ledger::Entry cancel;
    cancel.op = Op::cancel;
    cancel.cluster = "fake";
    cancel.runs = place.entries(Op::intent).front().runs;
    ledger.append(cancel);
  }
  place.write_log(Place::run_of(1), Status::ok);
  auto& state = place.scheduler.jobs["101"].state;
  state.phase = Phase::ended;
  state.end = Status::cancelled;
  state.end_reason = "CANCELLED by 1000";
  place.submit(3);
  const auto states = place.states();
  CHECK(states.at(Place::run_of(1)).attempts[0].status == Status::ok);
  for (const int point : {2, 3}) {
    const auto& attempt = states.at(Place::run_of(point)).attempts[0];
    CHECK(attempt.status == Status::cancelled);
    CHECK(attempt.reason == "by its user, before its turn");
  }
}

TEST_CASE("elements of an array have ids of their own, also where the reply was lost") {
  Place place;
  place.scheduler.file().array = true;
  SUBCASE("accepted") {}
  SUBCASE("lost") {
    place.scheduler.answers = {{.kind = Submission::Kind::lost, .job = {}, .text = "has it"}};
  }
  const SubmitReport report = place.submit(6);
  CHECK(report.jobs == 2);
  CHECK(report.started == 6);
  place.check_nothing_lost_or_doubled(6);
  std::set<std::string> ids;
  for (const auto& [run, state] : place.states()) ids.insert(state.attempts.at(0).job);
  CHECK(ids == std::set<std::string>{"101_0", "101_1", "101_2", "101_3", "102_0", "102_1"});
  place.end_all(Status::ok);
  CHECK(place.submit(6).ok_before == 6);
}

TEST_CASE(
    "an end is told by the log first, then by the cluster, and what nobody knows is unknown") {
  struct Case {
    const char* reason;
    std::optional<int> exit_code;
    Phase phase;
    Status expected;
    std::optional<Status> log;
    std::optional<Status> end;
  };
  const Case cases[] = {
      {"", 0, Phase::ended, Status::ok, Status::ok, Status::timeout},
      {"as the test says", 12, Phase::ended, Status::oom, Status::oom, Status::failed},
      {"ended without a log", 0, Phase::ended, Status::start_fail, std::nullopt, std::nullopt},
      {"out of device memory", 12, Phase::ended, Status::oom, std::nullopt, Status::failed},
      {"why", 0, Phase::ended, Status::timeout, std::nullopt, Status::timeout},
      {"why", 1, Phase::ended, Status::node_fail, std::nullopt, Status::node_fail},
      {"why", 143, Phase::ended, Status::preempted, std::nullopt, Status::preempted},
      {"why", 143, Phase::ended, Status::cancelled, std::nullopt, Status::cancelled},
      {"why", std::nullopt, Phase::ended, Status::start_fail, std::nullopt, Status::start_fail},
      {"job 101 is in neither queue nor accounts, and it left no result", std::nullopt,
       Phase::absent, Status::unknown, std::nullopt, std::nullopt},
      {"", std::nullopt, Phase::absent, Status::ok, Status::ok, std::nullopt},
  };
  for (const Case& c : cases) {
    Place place;
    place.submit(1);
    auto& known = place.scheduler.jobs.at("101");
    known.state.phase = c.phase;
    known.state.end = c.end;
    known.state.end_reason = "why";
    known.state.exit_code = c.exit_code;
    known.state.queue_s = 7;
    if (c.log) place.write_log(Place::run_of(1), *c.log);
    place.submit(1);
    const auto attempt = place.states().at(Place::run_of(1)).attempts.at(0);
    CAPTURE(to_text(c.expected));
    REQUIRE(attempt.status.has_value());
    CHECK(to_text(*attempt.status) == to_text(c.expected));
    CHECK(to_text(attempt.ended_by) == to_text(runlog::ended_by_of(c.expected)));
    CHECK(attempt.reason == c.reason);
    CHECK(attempt.queue_s == 7);
  }
}

TEST_CASE("jobs that will never start are named, and are not waited for") {
  Place place;
  place.options.wait = true;
  place.scheduler.on_query = [&] {
    for (auto& [id, known] : place.scheduler.jobs) {
      known.state.reason = "PartitionTimeLimit";
      known.state.never_starts = true;
    }
  };
  std::vector<std::string> named;
  place.events.never_starts = [&](const std::string& job, const std::string& reason) {
    named.push_back(job + " " + reason);
  };
  const SubmitReport report = place.submit(2);
  CHECK(report.never_start == 2);
  CHECK(report.on_cluster == 2);
  CHECK(named.size() == 2);
  CHECK(named[0] == Place::run_of(1) + " PartitionTimeLimit");
}

TEST_CASE("a cluster that falls silent while it waits is asked again") {
  Place place;
  place.options.wait = true;
  int questions = 0;
  place.scheduler.on_query = [&] {
    place.scheduler.unreachable = ++questions < 4;
    if (questions < 6) return;
    for (auto& [id, known] : place.scheduler.jobs) {
      if (known.state.phase == Phase::ended) continue;
      known.state.phase = Phase::ended;
      place.write_log(known.job.runs[0].run, Status::ok);
    }
  };
  std::vector<std::string> notes;
  place.events.note = [&](const std::string& text) { notes.push_back(text); };
  CHECK(place.submit(1).ok == 1);
  REQUIRE(notes.size() == 2);
  CHECK(notes[0].find("does not answer") != std::string::npos);
  CHECK(notes[1] == "fake answers again");
}

TEST_CASE("an interrupt leaves jobs on the cluster") {
  Place place;
  place.options.wait = true;
  place.scheduler.on_query = [&] { place.interrupted = true; };
  const SubmitReport report = place.submit(2);
  CHECK(report.on_cluster + report.not_started == 2);
  CHECK(place.scheduler.cancelled.empty());
}

TEST_CASE("jobs that will never start keep no other from starting") {
  Place place;
  place.options.wait = true;
  place.options.in_flight = 1;
  place.scheduler.on_query = [&] {
    for (auto& [id, known] : place.scheduler.jobs) {
      if (known.state.phase != Phase::pending) continue;
      if (id == "101") {
        known.state.never_starts = true;
        known.state.reason = "PartitionTimeLimit";
      } else {
        known.state.phase = Phase::ended;
        place.write_log(known.job.runs[0].run, Status::ok);
      }
    }
  };
  const SubmitReport report = place.submit(3);
  CHECK(report.ok == 2);
  CHECK(report.never_start == 1);
  CHECK(report.on_cluster == 1);
}

TEST_CASE("a job whose hold is released is waited for") {
  Place place;
  place.options.wait = true;
  int questions = 0;
  place.scheduler.on_query = [&] {
    auto& state = place.scheduler.jobs.at("101").state;
    ++questions;
    state.never_starts = questions < 3;
    if (questions < 5) return;
    if (state.phase != Phase::ended) place.write_log(Place::run_of(1), Status::ok);
    state.phase = Phase::ended;
    // The other one is there so that the first is not alone in being stuck.
    auto& other = place.scheduler.jobs.at("102");
    if (other.state.phase != Phase::ended) place.write_log(Place::run_of(2), Status::ok);
    other.state.phase = Phase::ended;
  };
  const SubmitReport report = place.submit(2);
  CHECK(report.ok == 2);
  CHECK(report.never_start == 0);
}
