// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/project/rerun.h"

#include <doctest/doctest.h>

#include "lib/base/error.h"
#include "lib/base/process.h"
#include "lib/jobs/run_folder.h"
#include "lib/jobs/run_lookup.h"
#include "tests/apps/submit/loop/project.h"

using namespace tessera;
using namespace tessera::submit;
using ledger::Op;
using runlog::Status;
using test::Project;

namespace {

// As apps do it.
SubmitReport rerun(Project& project, const std::vector<std::string>& texts) {
  Rerun again = rerun_of(project.dir(), texts);
  const SubmitOptions before = project.options;
  project.options.repeats = 1;
  project.options.select.named = again.named;
  struct Restore {
    Project& project;
    const SubmitOptions& options;
    ~Restore() { project.options = options; }
  } const restore{project, before};
  return project.submit(again.plan);
}

}  // namespace

TEST_CASE("a run is found by its name, its id and a piece that only it has") {
  const std::vector<std::string> runs{"p--a-s16-1g-0123456789ab", "p--a-s16-1g-0123456789ab-r2",
                                      "p--b-s16-1g-ba9876543210"};
  CHECK(jobs::find_run(runs[0], runs, "p") == runs[0]);  // though the second begins with it
  CHECK(jobs::find_run("ba9876543210", runs, "p") == runs[2]);
  CHECK(jobs::find_run("ab-r2", runs, "p") == runs[1]);
  CHECK(test::fault_of([&] { jobs::find_run("0123456789ab", runs, "p"); }, ExitCode::usage) ==
        "0123456789ab: fits 2 runs; write more of one: " + runs[0] + ", " + runs[1]);
  CHECK(test::fault_of([&] { jobs::find_run("nope", runs, "p"); }, ExitCode::empty) ==
        "nope: no run of project p; submit status p --all lists its runs");
  std::vector<std::string> many;
  for (int i = 0; i < 7; ++i) many.push_back("p--x-" + std::to_string(i));
  CHECK(test::fault_of([&] { jobs::find_run("x", many, "p"); }, ExitCode::usage) ==
        "x: fits 7 runs; write more of one: p--x-0, p--x-1, p--x-2, p--x-3, p--x-4, ...");
  CHECK(jobs::first_repeat(runs[1]) == runs[0]);
  CHECK(jobs::first_repeat(runs[0]) == runs[0]);
  CHECK(jobs::first_repeat("p--m-r2-s16-1g-0123456789ab") == "p--m-r2-s16-1g-0123456789ab");
}

TEST_CASE("a named run is started again however it ended, and no other; plans stay as they were") {
  Project project;
  project.options.repeats = 2;
  project.submit(3);
  const std::string ok = Project::run_of(1);
  const std::string failed = Project::run_of(2, 2);
  for (int point = 1; point <= 3; ++point) {
    for (int repeat = 1; repeat <= 2; ++repeat) {
      const std::string run = Project::run_of(point, repeat);
      project.end(run, 1, run == failed ? Status::failed : Status::ok);
    }
  }
  project.submit(3);
  const auto plans = project.entries(Op::plan);
  const int before = project.scheduler.hand_overs;

  const SubmitReport report = rerun(project, {ok, failed.substr(failed.size() - 8)});
  CHECK(report.started == 2);
  CHECK(report.unselected == 0);
  CHECK(project.scheduler.hand_overs == before + 2);
  CHECK(project.entries(Op::plan) == plans);
  const auto states = project.states();
  for (const auto& [run, state] : states) {
    CAPTURE(run);
    CHECK(state.attempts.size() == (run == ok || run == failed ? 2 : 1));
  }
  const auto spec = jobs::read_spec(project.dir() / failed, 2);
  REQUIRE(spec.has_value());
  CHECK(spec->repeat == 2);
  CHECK(spec->repeats == 2);
  CHECK(spec->point == jobs::read_spec(project.dir() / failed, 1)->point);

  // The sweep's own submit sees them as its own.
  project.options.repeats = 2;
  CHECK(project.submit(3).started == 0);
  CHECK(project.open == 2);
}

TEST_CASE("what has not ended and what is another user's cannot be run again") {
  Project project;
  project.submit(2);
  const int before = project.scheduler.hand_overs;
  project.end(Project::run_of(2), 1, Status::ok);
  CHECK(test::fault_of([&] { rerun(project, {Project::run_of(2), Project::run_of(1)}); },
                       ExitCode::refused) ==
        Project::run_of(1) + ": an attempt of it has not ended; end it with submit cancel first");
  CHECK(project.scheduler.hand_overs == before);

  ledger::Ledger kim(project.dir(), "kim-of-the-test", "n1");
  ledger::Entry entry;
  entry.op = Op::plan;
  const std::string theirs = Project::run_of(3);
  entry.points = {{.id = Project::plan_of(3).points[2].id,
                   .run = theirs,
                   .label = "tiny",
                   .point = Project::plan_of(3).points[2].point}};
  kim.append(entry);
  entry = {};
  entry.cluster = "fake";
  entry.runs = {{.run = theirs, .id = Project::plan_of(3).points[2].id}};
  entry.op = Op::intent;
  kim.append(entry);
  entry.op = Op::final;
  entry.status = Status::failed;
  kim.append(entry);
  CHECK(test::fault_of([&] { rerun(project, {theirs}); }, ExitCode::refused) ==
        theirs + ": is kim-of-the-test's run; only its user can run it again");
  CHECK(project.scheduler.hand_overs == before);
  CHECK(test::fault_of([&] { rerun(project, {"nope"}); }, ExitCode::empty).starts_with("nope: "));
}

TEST_CASE("a rerun has the microbatch, the unset variables and the origin of the last attempt") {
  Project project;
  sweep::Expansion plan = Project::plan_of(1);
  sweep::Planned& planned = plan.points.front();
  planned.point.global_batch = 8;
  planned.point.microbatch_size = sweep::kAutoMicrobatch;
  planned.point.env["NCCL_PROTO"] = "LL";
  planned.id = sweep::point_id(planned.point);
  planned.microbatch = 4;
  planned.unset_env = {"NCCL_ALGO", "OMP_PROC_BIND"};
  planned.derived_from = "0123456789ab";
  project.submit(plan);
  const std::string run = project.states().begin()->first;
  project.end(run, 1, Status::failed);

  const auto check = [&](int attempt) {
    const cluster::RunStart& start =
        project.scheduler.jobs.at(std::to_string(project.scheduler.last_id)).job.runs.at(0);
    CHECK(start.attempt == attempt);
    CHECK(start.unset == planned.unset_env);
    CHECK(start.env.at("NCCL_PROTO") == "LL");
    const auto spec = jobs::read_spec(project.dir() / run, attempt);
    REQUIRE(spec.has_value());
    CHECK(spec->microbatch == 4);
    CHECK(spec->derived_from == "0123456789ab");
    CHECK(spec->point == planned.point);
    project.end(run, attempt, Status::failed);
  };
  rerun(project, {run});
  check(2);

  SUBCASE("the newest specification that can be read tells") {
    write_file_atomically(jobs::spec_file(project.dir() / run, 2), "{}");
    rerun(project, {run});
    check(3);
  }
  SUBCASE("a ledger of an older version leaves the point to the specification") {
    // Its plan lines hold none.
    const auto entries = ledger::read_ledger(project.dir()).entries;
    std::filesystem::remove(project.ledger_file());
    ledger::Ledger ledger(project.dir(), user_name(), host_name());
    for (ledger::Entry entry : entries) {
      for (ledger::PlannedPoint& point : entry.points) point.point.reset();
      ledger.append(entry);
    }
    const auto plans = project.entries(Op::plan);
    rerun(project, {run});
    check(3);
    CHECK(project.entries(Op::plan) == plans);
    std::filesystem::remove(jobs::spec_file(project.dir() / run, 1));
    std::filesystem::remove(jobs::spec_file(project.dir() / run, 2));
    std::filesystem::remove(jobs::spec_file(project.dir() / run, 3));
    CHECK(test::fault_of([&] { rerun(project, {run}); }, ExitCode::refused)
              .find("neither ledger nor specification") != std::string::npos);
  }
  SUBCASE("a point that is not the one of its name is not run") {
    const auto entries = ledger::read_ledger(project.dir()).entries;
    std::filesystem::remove(project.ledger_file());
    ledger::Ledger ledger(project.dir(), user_name(), host_name());
    for (ledger::Entry entry : entries) {
      for (ledger::PlannedPoint& point : entry.points) point.point->seq_len = 32;
      ledger.append(entry);
    }
    CHECK(test::fault_of([&] { rerun(project, {run}); }, ExitCode::conflict)
              .find("another point than its name") != std::string::npos);
  }
}
