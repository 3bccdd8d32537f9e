// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/loop/reconcile.h"

#include <doctest/doctest.h>

#include "apps/submit/loop/oom.h"
#include "lib/point/identity.h"
#include "tests/apps/submit/loop/place.h"

using namespace tessera;
using namespace tessera::submit;
using cluster::Submission;
using ledger::Op;
using runlog::Status;
using test::Phase;
using test::Place;

TEST_CASE(
    "of finished runs nothing is asked and nothing written; a result that is gone is run again") {
  Place place;
  place.options.wait = true;
  place.end_all(Status::ok);
  CHECK(place.submit(4).ok == 4);
  const std::size_t known = ledger::read_ledger(place.project()).entries.size();
  place.scheduler.unreachable = true;
  CHECK(place.submit(4).ok_before == 4);
  CHECK(ledger::read_ledger(place.project()).entries.size() == known);
  place.scheduler.unreachable = false;
  // Removed, cut in its last record, and damaged there; the last run's is as it was.
  const auto log_of = [&](int point) {
    return place.project() / Place::run_of(point) / runlog::log_file_name(1, 0, 0);
  };
  std::filesystem::remove(log_of(1));
  std::filesystem::resize_file(log_of(2), std::filesystem::file_size(log_of(2)) - 2);
  std::string text = read_file(log_of(3));
  text.replace(text.rfind("\"ok\""), 4, "\"no\"");
  write_file_atomically(log_of(3), text);
  const SubmitReport report = place.submit(4);
  CHECK(report.ok_before == 1);
  CHECK(report.ok == 3);
  for (int point = 1; point <= 3; ++point) {
    const auto state = place.states().at(Place::run_of(point));
    REQUIRE(state.attempts.size() == 2);
    CHECK(state.attempts[0].status == Status::missing);
    CHECK(state.attempts[1].status == Status::ok);
  }
}

TEST_CASE("beyond what ran out of memory on the axis nothing is tried") {
  Place place;
  place.options.wait = true;
  place.options.in_flight = 1;
  place.options.stop_axis_after_oom = "microbatch_size";
  sweep::Expansion plan;
  for (const std::int64_t microbatch : {1, 2, 4, 8}) {
    sweep::Planned point = Place::plan_of(8).points.back();
    point.point.microbatch_size = microbatch;
    point.id = sweep::point_id(point.point);
    plan.points.push_back(point);
  }
  place.scheduler.on_query = [&] {
    for (auto& [id, known] : place.scheduler.jobs) {
      if (known.state.phase != Phase::pending) continue;
      known.state.phase = Phase::ended;
      place.write_log(known.job.runs[0].run,
                      place.scheduler.jobs.size() < 2 ? Status::ok : Status::oom);
    }
  };
  const auto submit = [&] {
    return submit_plan(plan, place.scheduler, place.options, place.events, place.interrupted);
  };
  SubmitReport report = submit();
  CHECK(report.ok == 1);
  CHECK(report.failed == 1);
  CHECK(report.skipped == 2);
  const auto drops = place.entries(Op::plan);
  REQUIRE(drops.back().dropped.size() == 1);
  CHECK(drops.back().dropped[0].reason == "memory");
  CHECK(drops.back().dropped[0].detail == "microbatch_size 2 ran out of memory");
  // The next submit knows it from the ledger.
  report = submit();
  CHECK(report.started == 0);
  CHECK(report.skipped == 2);
  place.options.stop_axis_after_oom.clear();
  CHECK(submit().started == 2);
}

TEST_CASE("what ran out of memory is derived with half the microbatch, down to one") {
  Place place;
  sweep::Expansion plan = Place::plan_of(8);
  plan.points.erase(plan.points.begin(), plan.points.end() - 1);
  plan.points[0].point.microbatch_size = 8;
  plan.points[0].id = sweep::point_id(plan.points[0].point);
  const auto retries = [&] {
    return oom_retries(plan.points, "p", 1, place.states(), place.project());
  };
  place.options.wait = true;
  place.end_all(Status::oom);
  std::vector<std::int64_t> tried;
  for (int round = 0; round < 6; ++round) {
    submit_plan(plan, place.scheduler, place.options, place.events, place.interrupted);
    const OomRetries next = retries();
    if (next.derived.empty()) break;
    REQUIRE(next.derived.size() == 1);
    CHECK(next.derived[0].derived_from == plan.points.back().id);
    tried.push_back(next.derived[0].point.microbatch_size);
    plan.points.push_back(next.derived[0]);
  }
  CHECK(tried == std::vector<std::int64_t>{4, 2, 1});
  // The specification says where a point comes from.
  const auto spec = place.scheduler.jobs.at("102").job.runs[0].spec_json;
  CHECK(spec.find("\"derived_from\":\"" + plan.points[0].id + "\"") != std::string::npos);
  // A plan that is made anew finds the whole chain.
  plan.points.resize(1);
  CHECK(retries().derived.size() == 3);
}

TEST_CASE(
    "an automatic microbatch that ran out of memory is halved in a new attempt of the same run") {
  Place place;
  sweep::Expansion plan = Place::plan_of(8);
  plan.points.erase(plan.points.begin(), plan.points.end() - 1);
  plan.points[0].point.microbatch_size = sweep::kAutoMicrobatch;
  plan.points[0].microbatch = 8;
  plan.points[0].id = sweep::point_id(plan.points[0].point);
  place.options.wait = true;
  place.end_all(Status::oom);
  submit_plan(plan, place.scheduler, place.options, place.events, place.interrupted);
  const OomRetries retries = oom_retries(plan.points, "p", 1, place.states(), place.project());
  CHECK(retries.derived.empty());
  REQUIRE(retries.again.size() == 1);
  CHECK(retries.microbatches.at(plan.points[0].id) == 4);
  plan.points[0].microbatch = 4;
  place.options.select.also = {retries.again[0]};
  place.end_all(Status::ok);
  CHECK(submit_plan(plan, place.scheduler, place.options, place.events, place.interrupted).ok == 1);
  CHECK(place.states().at(retries.again[0]).attempts.size() == 2);
  CHECK(place.scheduler.jobs.at("102").job.runs[0].spec_json.find("\"microbatch\":4") !=
        std::string::npos);
  CHECK(oom_retries(plan.points, "p", 1, place.states(), place.project()).again.empty());
}

TEST_CASE(
    "what no cluster took is no attempt; retries of what ran out of memory are started whatever is "
    "asked for") {
  Place place;
  const Submission no{.kind = Submission::Kind::refused, .job = {}, .text = "no"};
  place.scheduler.answers = {no, no, no};
  for (int i = 0; i < 3; ++i) CHECK(place.submit(1).refused == 1);
  place.options.select.most_attempts = 1;
  CHECK(place.submit(1).started == 1);

  Place other;
  other.options.select.only = Only::oom;
  CHECK(other.submit(2).started == 0);
  other.options.select.also = {Place::run_of(2)};
  CHECK(other.submit(2).started == 1);
  other.options.select = {.also = {Place::run_of(1)}, .only_also = true};
  CHECK(other.submit(3).started == 1);
}

TEST_CASE("where runs are and their ledger is not, nothing is run a second time") {
  Place place;
  place.options.wait = true;
  place.end_all(Status::ok);
  CHECK(place.submit(2).ok == 2);
  std::filesystem::remove_all(place.project() / ".tessera/ledger");
  try {
    place.submit(2);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::conflict);
    CHECK(std::string(error.what()).find("submit rebuild p makes it anew") != std::string::npos);
  }
  CHECK(place.scheduler.jobs.size() == 2);
  // Folders of runs that never began are no reason to stop.
  for (const int point : {1, 2})
    std::filesystem::remove_all(place.project() / Place::run_of(point));
  std::filesystem::create_directories(place.project() / Place::run_of(1));
  CHECK(place.submit(2).ok == 2);
}

TEST_CASE("arrays that are asked for beside a bound on jobs in flight are told of") {
  Place place;
  place.scheduler.file().array = true;
  std::vector<std::string> notes;
  place.events.note = [&](const std::string& text) { notes.push_back(text); };
  place.options.in_flight = 2;
  CHECK(place.submit(4).jobs == 4);
  CHECK(notes == std::vector<std::string>{
                     "no arrays: max_in_flight bounds the jobs that are there at once"});
  Place other;
  other.scheduler.file().array = true;
  CHECK(other.submit(4).jobs == 1);
}

TEST_CASE("a budget of GPU-hours is checked before anything is handed over") {
  Place place;
  sweep::Expansion plan = Place::plan_of(4);
  for (sweep::Planned& point : plan.points) {
    point.point.gpu = "h100_80gb";
    point.point.gpus = 8;
    point.point.threads = 0;
    point.id = sweep::point_id(sweep::normalized(point.point));
  }
  place.options.time_of = [](const sweep::Planned&) {
    return RunTime{.seconds = 900, .limit_s = 3600};
  };
  const auto submit = [&] {
    return submit_plan(plan, place.scheduler, place.options, place.events, place.interrupted);
  };
  place.options.max_gpu_hours = 7.9;  // 4 x 8 x 0.25 = 8
  CHECK_THROWS_AS(submit(), Error);
  CHECK(place.scheduler.hand_overs == 0);
  place.options.max_gpu_hours = 8;
  CHECK(submit().started == 4);
  place.options.max_gpu_hours = 0.1;  // nothing is left to be spent
  CHECK(submit().started == 0);
}
