// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/loop/hand_over.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <sstream>

#include "tests/apps/submit/loop/place.h"
#include "tests/exhaustive.h"

using namespace tessera;
using namespace tessera::submit;
using cluster::Submission;
using ledger::Op;
using runlog::Status;
using test::Phase;
using test::Place;

namespace {

// Submits in a child that dies by SIGKILL where `submit` says.
void submit_and_die(const std::function<void()>& submit) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      submit();
    } catch (...) {
      ::_exit(3);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
}

}  // namespace

TEST_CASE("each job is an intent before the cluster hears of it, and has its id afterwards") {
  Place place;
  place.scheduler.before_accepted = [&] {
    const auto intents = place.entries(Op::intent);
    REQUIRE_FALSE(intents.empty());
    CHECK(place.entries(Op::accepted).size() == intents.size() - 1);
  };
  const SubmitReport report = place.submit(3);
  CHECK(report.started == 3);
  CHECK(report.jobs == 3);
  CHECK(report.on_cluster == 3);
  CHECK(place.entries(Op::intent).size() == 3);
  const auto accepted = place.entries(Op::accepted);
  REQUIRE(accepted.size() == 3);
  CHECK(accepted[0].job == "101");
  CHECK(accepted[0].cluster == "fake");
  place.check_nothing_lost_or_doubled(3);
  // Again: all is there.
  CHECK(place.submit(3).started == 0);
  CHECK(place.submit(4).started == 1);
}

TEST_CASE("a lost reply is looked up by name and adopted, never handed over again") {
  Place place;
  place.scheduler.answers = {{.kind = Submission::Kind::lost, .job = {}, .text = "has it"}};
  place.scheduler.hidden = 3;  // the queue shows it late
  place.scheduler.file().lookup_s = 30;
  const SubmitReport report = place.submit(2);
  CHECK(report.started == 2);
  CHECK(place.scheduler.hand_overs == 2);
  const auto adopted = place.entries(Op::adopted);
  REQUIRE(adopted.size() == 1);
  CHECK(adopted[0].job == "101");
  place.check_nothing_lost_or_doubled(2);
}

TEST_CASE("a lost reply that the cluster never heard of is handed over again, as a new attempt") {
  Place place;
  place.scheduler.answers = {{.kind = Submission::Kind::lost, .job = {}, .text = "nothing"}};
  const SubmitReport report = place.submit(1);
  CHECK(report.started == 1);
  CHECK(place.scheduler.hand_overs == 2);
  const auto attempts = place.states().begin()->second.attempts;
  REQUIRE(attempts.size() == 2);
  CHECK(attempts[0].status == Status::missing);
  CHECK(attempts[1].confirmed);
  place.check_nothing_lost_or_doubled(1);
}

TEST_CASE("a cluster that never answers is given up") {
  Place place;
  for (int i = 0; i < 9; ++i)
    place.scheduler.answers.push_back({.kind = Submission::Kind::lost, .job = {}, .text = "no"});
  const SubmitReport report = place.submit(2);
  CHECK(place.scheduler.hand_overs == place.options.max_failures);
  CHECK(report.started == 0);
  CHECK(report.not_started == 2);
}

TEST_CASE("refused jobs are named, and after some no more are handed over") {
  Place place;
  place.options.max_failures = 2;
  for (int i = 0; i < 9; ++i) {
    place.scheduler.answers.push_back(
        {.kind = Submission::Kind::refused, .job = {}, .text = "invalid partition"});
  }
  std::vector<std::string> notes;
  place.events.note = [&](const std::string& text) { notes.push_back(text); };
  const SubmitReport report = place.submit(5);
  CHECK(report.refused == 2);
  CHECK(report.not_started == 3);
  REQUIRE(notes.size() == 2);
  CHECK(notes[0].find("invalid partition") != std::string::npos);
  const auto finals = place.entries(Op::final);
  REQUIRE(finals.size() == 2);
  CHECK(finals[0].status == Status::missing);
  CHECK(finals[0].reason == "fake refused it: invalid partition");
  // Mended: the same command goes on with all.
  place.scheduler.answers.clear();
  CHECK(place.submit(5).started == 5);
  place.check_nothing_lost_or_doubled(5);
}

TEST_CASE("a busy cluster is tried again, then left for later") {
  Place place;
  const Submission busy{.kind = Submission::Kind::busy, .job = {}, .text = "too many jobs"};
  place.scheduler.answers = {{}, busy, busy};
  SubmitReport report = place.submit(2);
  CHECK(report.started == 2);
  CHECK(place.scheduler.hand_overs == 4);
  place.scheduler.answers.assign(20, busy);
  report = place.submit(4);
  CHECK(report.started == 0);
  CHECK(report.not_started == 2);
  place.scheduler.answers.clear();
  CHECK(place.submit(4).started == 2);
  place.check_nothing_lost_or_doubled(4);
}

TEST_CASE("with --wait a full cluster takes the rest as jobs end") {
  Place place;
  place.options.wait = true;
  const Submission busy{.kind = Submission::Kind::busy, .job = {}, .text = "too many jobs"};
  place.scheduler.answers = {{}, busy, busy, {}, busy, {}};
  place.end_all(Status::ok);
  const SubmitReport report = place.submit(3);
  CHECK(report.ok == 3);
  CHECK(report.not_started == 0);
}

TEST_CASE("no more than max_in_flight jobs are on the cluster at once") {
  Place place;
  place.options.in_flight = 2;
  SUBCASE("while it stays, because it waits") {
    place.options.wait = true;
    std::size_t most = 0;
    place.scheduler.on_query = [&] {
      std::size_t open = 0;
      for (auto& [id, known] : place.scheduler.jobs)
        open += known.state.phase == Phase::pending ? 1 : 0;
      most = std::max(most, open);
      if (open < 2 && place.scheduler.hand_overs < 5) return;
      for (auto& [id, known] : place.scheduler.jobs) {
        if (known.state.phase != Phase::pending) continue;
        known.state.phase = Phase::ended;
        place.write_log(known.job.runs[0].run, Status::ok);
        break;
      }
    };
    CHECK(place.submit(5).ok == 5);
    CHECK(most == 2);
  }
  SUBCASE("when it leaves, because each waits for an earlier one") {
    place.submit(5);
    CHECK(place.scheduler.jobs["101"].job.after.empty());
    CHECK(place.scheduler.jobs["102"].job.after.empty());
    CHECK(place.scheduler.jobs["103"].job.after == std::vector<std::string>{"101"});
    CHECK(place.scheduler.jobs["105"].job.after == std::vector<std::string>{"103"});
    // Those of an earlier submit count.
    place.submit(6);
    CHECK(place.scheduler.jobs["106"].job.after == std::vector<std::string>{"104"});
  }
}

TEST_CASE(
    "jobs of an earlier submit are in the order of their hand-over, also within a millisecond") {
  std::map<std::string, ledger::RunState> states;
  const auto add = [&](const char* run, const char* job, const char* utc) {
    ledger::RunState& state = states[run];
    state.ref.run = run;
    ledger::AttemptState& attempt = state.attempts.emplace_back();
    attempt.last = Op::accepted;
    attempt.user = "kim";
    attempt.cluster = "fake";
    attempt.job = job;
    attempt.confirmed = true;
    attempt.since_utc = utc;
  };
  add("p--a", "1000", "2026-11-30T05:00:00.007Z");
  add("p--b", "999", "2026-11-30T05:00:00.007Z");
  add("p--c", "1001", "2026-11-30T05:00:00.006Z");
  std::vector<std::string> jobs;
  for (const jobs::LiveJob& live : jobs::live_jobs("/none", states, "kim", "fake"))
    jobs.push_back(live.job.job);
  CHECK(jobs == std::vector<std::string>{"1001", "999", "1000"});
}

TEST_CASE("a cluster that cannot be asked stops a submit before it hands anything over") {
  Place place;
  place.submit(1);
  place.scheduler.unreachable = true;
  const int before = place.scheduler.hand_overs;
  CHECK_THROWS_AS(place.submit(3), Error);
  CHECK(place.scheduler.hand_overs == before);
}

TEST_CASE("a cluster that does not answer a hand-over is asked again while submit waits") {
  Place place;
  place.options.wait = true;
  place.end_all(Status::ok);
  place.scheduler.on_hand_over = [&] {
    place.scheduler.unreachable = place.scheduler.hand_overs < 4;
  };
  const SubmitReport report = place.submit(2);
  CHECK(report.ok == 2);
  place.check_nothing_lost_or_doubled(2);
  // Without --wait it is an error, and nothing is open.
  Place leaves;
  leaves.scheduler.on_hand_over = [&] { leaves.scheduler.unreachable = true; };
  CHECK_THROWS_AS(leaves.submit(2), Error);
  CHECK(leaves.states().begin()->second.attempts[0].status == Status::missing);
}

TEST_CASE("a job that ended before its lost reply was looked up counts as what it ended as") {
  Place place;
  place.options.wait = true;
  place.scheduler.answers = {{.kind = Submission::Kind::lost, .job = {}, .text = "has it"}};
  place.end_all(Status::nan);
  const SubmitReport report = place.submit(1);
  CHECK(report.started == 1);
  CHECK(report.failed == 1);
}

TEST_CASE("killed at any write or request of a submission, then again: each job once") {
  // The child's cluster is a copy of its memory: what it took is told through a file.
  const int kPoints = test::is_exhaustive() ? 20 : 8;
  constexpr int kStations = 3;
  for (int at = 0; at < kPoints * kStations; ++at) {
    Place place;
    place.scheduler.file().lookup_s = 0.004;
    const auto taken = place.project().parent_path() / "taken";
    submit_and_die([&] {
      auto& scheduler = place.scheduler;
      const auto die_at = [&](int station) {
        if (at == (scheduler.hand_overs - 1) * kStations + station) ::kill(::getpid(), SIGKILL);
      };
      scheduler.on_hand_over = [&] { die_at(0); };
      scheduler.before_accepted = [&] {
        const auto& known = scheduler.jobs.at(std::to_string(scheduler.last_id));
        write_file_atomically(taken, read_file_if_exists(taken).value_or("") +
                                         std::to_string(scheduler.last_id) + " " + known.job.name +
                                         "\n");
        die_at(1);
      };
      scheduler.after_accepted = [&] { die_at(2); };
      place.submit(kPoints);
    });
    // What the cluster has, whatever became of the submit.
    std::istringstream text(read_file_if_exists(taken).value_or(""));
    int id = 0;
    std::string name;
    while (text >> id >> name) {
      auto& known = place.scheduler.jobs[std::to_string(id)];
      known.job.name = name;
      known.job.runs = {{.run = name}};
      known.state.phase = Phase::pending;
      place.scheduler.last_id = id;
    }
    CHECK(std::ssize(place.scheduler.jobs) == at / kStations + (at % kStations == 0 ? 0 : 1));
    place.submit(kPoints);
    CAPTURE(at);
    place.check_nothing_lost_or_doubled(kPoints);
  }
}
