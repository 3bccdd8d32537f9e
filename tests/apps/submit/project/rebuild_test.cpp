// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/project/rebuild.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/process.h"
#include "lib/jobs/run_folder.h"
#include "tests/apps/submit/loop/project.h"

using namespace tessera;
using namespace tessera::submit;
using ledger::Op;
using runlog::Status;
using test::Phase;
using test::Project;

namespace {

Rebuilt rebuild(Project& project) {
  test::OneScheduler schedulers(project.dir(), project.scheduler);
  return rebuild_ledger(project.dir(), schedulers, false, [](const std::string&) {});
}

// What a submit of the sweep would find, without what it starts.
struct Found {
  std::vector<std::string> selected;
  int open = 0;
  bool operator==(const Found&) const = default;
};

Found look(Project& project, int points) {
  const int before = project.scheduler.hand_overs;
  project.submit(points);
  CHECK(project.scheduler.hand_overs == before);
  return {.selected = project.selected, .open = project.open};
}

}  // namespace

TEST_CASE("a ledger made anew knows what the old one knew: the next submit starts nothing") {
  Project project;
  project.options.repeats = 2;
  SUBCASE("of jobs of one run") {}
  SUBCASE("of arrays") {
    project.scheduler.file().array = true;
  }
  SUBCASE("of packed jobs") {
    project.options.pack_s = 30;
    project.options.time_of = [](const sweep::Planned&) {
      return RunTime{.seconds = 10, .limit_s = 20};
    };
  }
  project.submit(4);
  // jobs::Ended ok, failed, running and pending ones; a packed job runs as a whole.
  project.end(Project::run_of(1, 1), 1, Status::ok);
  project.end(Project::run_of(1, 2), 1, Status::ok);
  project.end(Project::run_of(2, 1), 1, Status::failed);
  if (project.options.pack_s > 0) {
    for (auto& [id, known] : project.scheduler.jobs) {
      if (known.job.name == Project::run_of(2, 2)) known.state.phase = Phase::running;
    }
    project.write_log(Project::run_of(2, 2), 1, Status::ok);
  }
  project.submit(4);
  project.options.select.only = Only::failed;
  project.submit(4);  // the second attempt of what failed
  project.options.select.only = Only::missing;
  for (auto& [id, known] : project.scheduler.jobs) {
    if (known.state.phase == Phase::pending && known.job.runs[0].attempt == 2)
      known.state.phase = Phase::running;
  }
  project.write_log(Project::run_of(2, 1), 2, std::nullopt);
  const Found before = look(project, 4);
  const auto states = project.states();
  const auto old_text = read_file(project.ledger_file());

  const bool deleted = [&] {
    SUBCASE("deleted") {
      return true;
    }
    SUBCASE("damaged") {
      return false;
    }
    return true;
  }();
  if (deleted) {
    std::filesystem::remove(project.ledger_file());
  } else {
    std::string text = old_text;
    text[text.size() / 2] ^= 1;
    std::ofstream(project.ledger_file(), std::ios::binary) << text;
    try {
      project.submit(4);
      FAIL("a damaged ledger was taken");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::conflict);
      CHECK(std::string(error.what()).find("submit rebuild") != std::string::npos);
    }
  }
  const Rebuilt rebuilt = rebuild(project);
  CHECK(rebuilt.points == 4);
  CHECK(rebuilt.runs == 8);
  CHECK(rebuilt.attempts == 9);
  CHECK(rebuilt.unreadable.empty());
  CHECK(rebuilt.silent.empty());
  CHECK(static_cast<int>(rebuilt.open) == before.open);
  CHECK(rebuilt.kept.empty() == deleted);
  if (!deleted) CHECK(std::filesystem::exists(rebuilt.kept / project.ledger_file().filename()));

  CHECK(look(project, 4) == before);
  const auto anew = project.states();
  REQUIRE(anew.size() == states.size());
  for (const auto& [run, state] : states) {
    CAPTURE(run);
    const auto& attempts = anew.at(run).attempts;
    REQUIRE(attempts.size() == state.attempts.size());
    CHECK(anew.at(run).ref.id == state.ref.id);
    CHECK(anew.at(run).ref.repeat == state.ref.repeat);
    for (std::size_t i = 0; i < attempts.size(); ++i) {
      CHECK(attempts[i].attempt == state.attempts[i].attempt);
      CHECK(attempts[i].status == state.attempts[i].status);
      CHECK(attempts[i].build == state.attempts[i].build);
      CHECK(attempts[i].name == state.attempts[i].name);
      CHECK(attempts[i].array == state.attempts[i].array);
      CHECK(attempts[i].index == state.attempts[i].index);
      // The cluster was asked for those that have not ended.
      if (!attempts[i].status) CHECK(attempts[i].job == state.attempts[i].job);
    }
  }
  // The rest ends as if nothing had been.
  for (auto& [id, known] : project.scheduler.jobs) {
    if (known.state.phase == Phase::ended) continue;
    known.state.phase = Phase::ended;
    for (std::size_t i = 0; i < known.job.runs.size(); ++i) {
      const cluster::RunStart& run = known.job.runs[i];
      if (known.job.array && i != known.element) continue;
      if (run.run == Project::run_of(2, 1) && run.attempt == 2) continue;
      if (std::filesystem::exists(run.run_dir / runlog::log_file_name(run.attempt, 0, 0))) continue;
      project.write_log(run.run, run.attempt, Status::ok);
    }
  }
  look(project, 4);
  for (const auto& [run, state] : project.states())
    CHECK((state.attempts.back().status == Status::ok) == (run != Project::run_of(2, 1)));
}

TEST_CASE("what was handed over without a trace on the cluster may be run again") {
  Project project;
  project.submit(2);
  std::filesystem::remove(project.ledger_file());
  project.scheduler.jobs.erase("102");
  project.scheduler.file().lookup_s = 0.01;
  CHECK(rebuild(project).open == 1);
  CHECK(project.states().at(Project::run_of(2)).attempts.at(0).status == Status::missing);
  CHECK(project.submit(2).started == 1);
}

TEST_CASE("a cluster that does not answer leaves the ends to the next submit") {
  Project project;
  project.submit(2);
  const auto since = project.states().at(Project::run_of(1)).attempts.at(0).since_utc;
  std::filesystem::remove(project.ledger_file());
  project.scheduler.unreachable = true;
  const Rebuilt rebuilt = rebuild(project);
  CHECK(rebuilt.open == 2);
  REQUIRE(rebuilt.silent.size() == 1);
  CHECK(rebuilt.silent[0].starts_with("fake: "));
  // Accounts are searched from the hand-over on, not from now.
  const auto again = project.states().at(Project::run_of(1)).attempts.at(0).since_utc;
  CHECK(again.substr(0, 15) == since.substr(0, 15));
  project.scheduler.unreachable = false;
  CHECK(project.submit(2).started == 0);
  CHECK(project.open == 2);
}

TEST_CASE("nothing is guessed: what cannot be read is named, what is another user's is left") {
  Project project;
  project.submit(4);
  const auto folder = [&](int point) { return project.dir() / Project::run_of(point); };
  write_file_atomically(jobs::spec_file(folder(1), 1), "{\"schema\": 1");
  // A log alone tells all if its header can be read.
  std::string spec = read_file(jobs::spec_file(folder(3), 1));
  const std::string mine = "\"user\":\"" + user_name() + "\"";
  spec.replace(spec.find(mine), mine.size(), "\"user\":\"kim-of-the-test\"");
  write_file_atomically(jobs::spec_file(folder(3), 1), spec);
  std::filesystem::copy_file(jobs::spec_file(folder(2), 1), jobs::spec_file(folder(4), 3));
  std::filesystem::create_directories(project.dir() / "p--empty-0123456789ab");
  std::filesystem::create_directories(project.dir() / "results");
  const Rebuilt rebuilt = rebuild(project);
  CHECK(rebuilt.attempts == 2);
  CHECK(rebuilt.others == 1);
  std::vector<std::string> named = rebuilt.unreadable;
  std::ranges::sort(named);
  std::vector<std::string> expected{
      "p--empty-0123456789ab: holds no attempt, left out",
      Project::run_of(1) + " attempt 1: neither specification nor log can be read, left out",
      Project::run_of(4) + " attempt 3: its specification is that of " + Project::run_of(2) +
          " attempt 1, left out"};
  std::ranges::sort(expected);
  CHECK(named == expected);
  CHECK_FALSE(project.states().contains(Project::run_of(3)));
}

TEST_CASE("other users' files stay, and a project without an attempt keeps what it has") {
  Project project;
  CHECK_THROWS_AS(rebuild(project), Error);
  project.submit(1);
  {
    ledger::Ledger kim(project.dir(), "kim-of-the-test", "n1");
    ledger::Entry entry;
    entry.op = Op::plan;
    kim.append(entry);
    // Mine on another host is replaced too.
    ledger::Ledger elsewhere(project.dir(), user_name(), "host-of-the-test");
    elsewhere.append(entry);
  }
  const auto kims = project.dir() / ".tessera/ledger/kim-of-the-test@n1.jsonl";
  std::ofstream(kims, std::ios::app) << "{\"no\":\"entry\"}\n";
  const std::string text = read_file(kims);
  const Rebuilt rebuilt = rebuild(project);
  CHECK(read_file(kims) == text);
  REQUIRE(rebuilt.damage.size() == 1);
  CHECK(rebuilt.damage[0].starts_with(kims.string() + ":2: "));
  const std::string elsewhere = user_name() + "@host-of-the-test.jsonl";
  CHECK_FALSE(std::filesystem::exists(project.dir() / ".tessera/ledger" / elsewhere));
  CHECK(std::filesystem::exists(rebuilt.kept / elsewhere));
  CHECK_FALSE(std::filesystem::exists(project.dir() / ".tessera/rebuild"));

  std::filesystem::remove_all(project.dir() / Project::run_of(1));
  const std::string own = read_file(project.ledger_file());
  CHECK_THROWS_AS(rebuild(project), Error);
  CHECK(read_file(project.ledger_file()) == own);
}

TEST_CASE("killed while it asks the cluster, a rebuild leaves a ledger that the next submit ends") {
  Project project;
  project.submit(3);
  project.end(Project::run_of(1), 1, Status::ok);
  // What an earlier one left that died before it was done.
  ledger::Ledger(project.dir() / ".tessera/rebuild", user_name(), host_name())
      .append(ledger::Entry{});
  const pid_t child = ::fork();
  if (child == 0) {
    project.scheduler.on_query = [] { ::kill(::getpid(), SIGKILL); };
    rebuild(project);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFSIGNALED(status));
  CHECK(project.entries(Op::intent).size() == 3);
  CHECK(project.entries(Op::accepted).empty());
  CHECK(project.submit(3).started == 0);
  CHECK(project.open == 2);
  CHECK(project.entries(Op::adopted).size() == 2);
  CHECK(rebuild(project).open == 2);
}

TEST_CASE("a hand-over is dated by the log where the specification was copied since") {
  Project project;
  project.submit(1);
  const std::string run = Project::run_of(1);
  project.write_log(run, 1, std::nullopt);
  const auto spec = jobs::spec_file(project.dir() / run, 1);
  std::filesystem::last_write_time(spec,
                                   std::filesystem::last_write_time(spec) + std::chrono::hours(2));
  rebuild(project);
  const auto age_s = seconds_since_utc(project.states().at(run).attempts.at(0).since_utc);
  REQUIRE(age_s.has_value());
  CHECK(*age_s >= 0);
  CHECK(*age_s < 600);
}
