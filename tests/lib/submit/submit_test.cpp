#include "lib/submit/submit.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <set>
#include <sstream>

#include "lib/base/process.h"
#include "lib/runlog/writer.h"
#include "lib/submit/live_jobs.h"
#include "lib/submit/oom.h"
#include "lib/sweep/identity.h"
#include "tests/lib/runlog/samples.h"
#include "tests/lib/submit/fake_scheduler.h"
#include "tests/lib/submit/tiny_plan.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::submit;
using cluster::Submission;
using ledger::Op;
using runlog::Status;
using test::FakeScheduler;

namespace {

using Phase = FakeScheduler::Phase;

class Place {
 public:
  Place() {
    ::setenv("TESSERA_STATE_DIR", (folder_ / "state").c_str(), 1);
    write_file_atomically(folder_ / "fake.yaml", "tessera_cluster: 1\nkind: slurm\n");
    scheduler.file().source = (folder_ / "fake.yaml").string();
    options.project = "p";
    options.workspace = folder_ / "runs";
  }
  ~Place() { ::unsetenv("TESSERA_STATE_DIR"); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  static sweep::Expansion plan_of(int points) { return test::tiny_plan(points, "fake"); }

  SubmitReport submit(int points) {
    return submit_plan(plan_of(points), scheduler, options, events, interrupted);
  }

  std::filesystem::path project() const { return folder_ / "runs/p"; }
  std::vector<ledger::Entry> entries(Op op) const {
    std::vector<ledger::Entry> found;
    for (const ledger::Entry& entry : ledger::read_ledger(project()).entries) {
      if (entry.op == op) found.push_back(entry);
    }
    return found;
  }
  std::map<std::string, ledger::RunState> states() const {
    return ledger::run_states(ledger::read_ledger(project()));
  }
  static std::string run_of(int point) { return test::tiny_run(point, "fake"); }

  // The log of an attempt that ended so.
  void write_log(const std::string& run, Status status, int attempt = 1) const {
    auto log = runlog::Writer::to_folder(
        project() / run,
        {.project = "p", .run = run, .id = run.substr(run.size() - 12), .attempt = attempt});
    log.write(runlog::Kind::header, {{"label", "tiny"}});
    runlog::Footer footer = test::sample_footer();
    footer.status = status;
    if (status != Status::ok) footer.reason = "as the test says";
    log.write(runlog::Kind::footer, footer_json(footer, log.facts()));
  }

  // Every pending job ends at the next question, with a log that says so.
  void end_all(Status status) {
    scheduler.on_query = [this, status] {
      for (auto& [id, known] : scheduler.jobs) {
        if (known.state.phase != Phase::pending) continue;
        known.state.phase = Phase::ended;
        for (std::size_t i = 0; i < known.job.runs.size(); ++i) {
          if (known.job.array && i != known.element) continue;
          write_log(known.job.runs[i].run, status, known.job.runs[i].attempt);
        }
      }
    };
  }

  // All jobs that the ledger says are confirmed, and those that the cluster has: the same, each
  // once.
  void check_nothing_lost_or_doubled(int points) const {
    std::map<std::string, int> by_run;
    for (const auto& [id, known] : scheduler.jobs) {
      for (std::size_t i = 0; i < known.job.runs.size(); ++i) {
        if (!known.job.array || i == known.element) ++by_run[known.job.runs[i].run];
      }
    }
    CHECK(static_cast<int>(by_run.size()) == points);
    for (const auto& [run, count] : by_run) {
      CAPTURE(run);
      CHECK(count == 1);
    }
    int confirmed = 0;
    for (const auto& [run, state] : states()) {
      for (const auto& attempt : state.attempts) confirmed += attempt.confirmed ? 1 : 0;
    }
    CHECK(confirmed == points);
  }

  FakeScheduler scheduler;
  SubmitOptions options;
  SubmitEvents events;
  std::atomic<bool> interrupted{false};

 private:
  test::TemporaryFolder folder_;
};

// Submits in a child that dies by SIGKILL where `arrange` says.
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

TEST_CASE("a cluster that cannot be asked stops a submit before it hands anything over") {
  Place place;
  place.submit(1);
  place.scheduler.unreachable = true;
  const int before = place.scheduler.hand_overs;
  CHECK_THROWS_AS(place.submit(3), Error);
  CHECK(place.scheduler.hand_overs == before);
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

TEST_CASE("killed at any write or request of a submission, then again: each job once") {
  // The child's cluster is a copy of its memory: what it took is told through a file.
  constexpr int kPoints = 20;
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
