// SPDX-License-Identifier: Apache-2.0
// Submission to this machine: who runs when, and what is left behind. A shell script stands in the
// trainer's place.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "apps/submit/loop/submit.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/process.h"
#include "lib/base/tree.h"
#include "lib/cluster/local/process.h"
#include "lib/cluster/local/scheduler.h"
#include "lib/jobs/live_jobs.h"
#include "lib/point/identity.h"
#include "lib/point/run_spec.h"
#include "lib/runlog/writer.h"
#include "tests/apps/submit/loop/tiny_plan.h"
#include "tests/exhaustive.h"
#include "tests/lib/runlog/samples.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::submit;
using ledger::Op;
using runlog::Status;

namespace {

class LocalProject {
 public:
  explicit LocalProject(const std::string& trainer, int max_parallel = 1) {
    ::setenv("TESSERA_STATE_DIR", (folder_ / "state").c_str(), 1);
    write_file_atomically(folder_ / "trainer", "#!/bin/sh\n" + trainer + "\n");
    ::chmod((folder_ / "trainer").c_str(), 0755);
    write_file_atomically(folder_ / "local.yaml",
                          "tessera_cluster: 1\nkind: local\ngpus: {cpu: {per_node: 1}}\n");
    options.project = "p";
    options.workspace = folder_ / "runs";
    options.trainer = folder_ / "trainer";
    options.in_flight = max_parallel;
  }
  ~LocalProject() { ::unsetenv("TESSERA_STATE_DIR"); }
  LocalProject(const LocalProject&) = delete;
  LocalProject& operator=(const LocalProject&) = delete;

  static sweep::Expansion plan_of(int points) { return test::tiny_plan(points, "local"); }
  static std::string run_of(int point) { return test::tiny_run(point, "local"); }

  SubmitReport submit(int points) {
    cluster::Cluster cluster = cluster::read_cluster((folder_ / "local.yaml").string());
    const auto scheduler = cluster::local_scheduler(cluster, options.trainer, user_name());
    return submit_plan(plan_of(points), *scheduler, options, events, interrupted);
  }

  std::filesystem::path cluster_file() const { return folder_ / "local.yaml"; }
  std::filesystem::path run_dir(int point) const { return options.workspace / "p" / run_of(point); }
  std::string output(int point) const {
    return read_file_if_exists(run_dir(point) / "out.1.0.0").value_or("");
  }
  sweep::RunSpec spec(int point) const {
    const auto path = run_dir(point) / "run.1.json";
    return sweep::parse_run_spec(read_file(path), path.string());
  }
  std::map<std::string, ledger::RunState> states() const {
    return ledger::run_states(ledger::read_ledger(options.workspace / "p"));
  }

  SubmitOptions options;
  SubmitEvents events;
  std::atomic<bool> interrupted{false};

 private:
  test::TemporaryFolder folder_;
};

runlog::Json step_of(int step, bool warmup) {
  return {{"step", step}, {"warmup", warmup}, {"seconds", 0.5},
          {"tokens", 64}, {"loss", 9.5},      {"grad_norm", 1.5}};
}

const std::string kRun = "p--a-0123456789ab";

std::map<std::string, ledger::RunState> open_attempt(const std::string& host) {
  ledger::AttemptState attempt;
  attempt.last = Op::accepted;
  attempt.confirmed = true;
  attempt.host = host;
  attempt.user = "kim";
  attempt.cluster = "local";
  return {{kRun, {.ref = {.run = kRun, .id = "0123456789ab"}, .attempts = {attempt}}}};
}

// What the local scheduler and the log tell of the only open attempt.
jobs::Resolved resolve_only(const std::filesystem::path& project_dir,
                            const std::map<std::string, ledger::RunState>& states) {
  const auto jobs = jobs::live_jobs(project_dir, states, "kim");
  REQUIRE(jobs.size() == 1);
  const auto scheduler = cluster::local_scheduler({}, "trainer", "kim");
  const auto answers = scheduler->query(std::vector{jobs[0].job});
  return jobs::resolve(jobs[0], answers.at(0), jobs::Reply::is_lost, jobs::cancelled_in(states));
}

}  // namespace

TEST_CASE("the queue keeps to its parallelism, in order, and tells how each ended") {
  LocalProject place("case $2 in *" + LocalProject::run_of(4) + "*) exit 13;; esac; sleep 0.1", 2);
  std::map<std::string, cluster::Outcome> outcomes;
  std::size_t most = 0;
  place.events.ended = [&](const std::string& run, const cluster::Outcome& outcome) {
    outcomes[run] = outcome;
  };
  place.events.progress = [&](const Progress& p) { most = std::max(most, p.running.size()); };
  const SubmitReport report = place.submit(6);
  CHECK(report.started == 6);
  CHECK(report.failed == 6);  // success without a log is none
  CHECK(most == 2);
  CHECK(outcomes[LocalProject::run_of(1)].status == Status::start_fail);
  CHECK(outcomes[LocalProject::run_of(1)].reason == "ended without a log");
  CHECK(outcomes[LocalProject::run_of(4)].status == Status::host_oom);
  std::vector<std::string> order;
  for (const auto& entry : ledger::read_ledger(place.options.workspace / "p").entries) {
    if (entry.op == Op::intent) order.push_back(entry.runs.front().run);
  }
  for (int i = 1; i <= 6; ++i)
    CHECK(order.at(static_cast<std::size_t>(i) - 1) == LocalProject::run_of(i));
}

TEST_CASE("a run is told what may run beside it, not what ended before it") {
  const auto shared = [](int max_parallel, int runs) {
    LocalProject place("sleep 0.1", max_parallel);
    place.submit(runs);
    std::vector<int> seen;
    for (int i = 1; i <= runs; ++i) seen.push_back(place.spec(i).shared_with);
    return seen;
  };
  CHECK(shared(1, 2) == std::vector{0, 0});
  CHECK(shared(2, 1) == std::vector{0});  // nobody is left to run beside it
  CHECK(shared(2, 2) == std::vector{1, 1});
  CHECK(shared(3, 2) == std::vector{1, 1});
}

TEST_CASE("an interrupt tells the running ones to end and starts no more") {
  LocalProject place("trap 'echo told; exit 0' TERM; while :; do sleep 0.02; done");
  std::thread later([&] {
    while (place.output(1).empty() && !std::filesystem::exists(place.run_dir(1) / "run.1.pid"))
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    place.interrupted = true;
  });
  const SubmitReport report = place.submit(3);
  later.join();
  CHECK(report.started == 1);
  CHECK(report.not_started == 2);
  CHECK(place.output(1).ends_with("told\n"));
  CHECK_FALSE(std::filesystem::exists(place.run_dir(2)));
}

TEST_CASE("a missing trainer stops it; what runs is waited for; nothing is half-begun") {
  LocalProject place("echo begun; sleep 0.3; echo ran", 2);
  place.events.progress = [&](const Progress& p) {
    if (p.submitted != 1) return;
    while (place.output(1).empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::filesystem::remove(place.options.trainer);
  };
  CHECK_THROWS_AS(place.submit(3), Error);
  CHECK(place.output(1) == "begun\nran\n");
  CHECK_FALSE(std::filesystem::exists(place.run_dir(2) / "run.1.json"));
  const auto states = place.states();
  CHECK(states.at(LocalProject::run_of(1)).attempts.at(0).last == Op::final);
}

TEST_CASE("an intent whose process never began is missing, so it may be run again") {
  const test::TemporaryFolder folder;
  auto states = open_attempt(host_name());
  states.at(kRun).attempts[0].last = Op::intent;
  states.at(kRun).attempts[0].confirmed = false;
  const jobs::Resolved result = resolve_only(folder.path(), states);
  REQUIRE(result.ended.size() == 1);
  CHECK(result.ended[0].entry.status == Status::missing);
  CHECK(result.ended[0].entry.runs[0].run == kRun);
}

TEST_CASE("a process that is gone has its status from its log") {
  const test::TemporaryFolder folder;
  const auto dir = folder / kRun;
  make_directories(dir);
  write_file_atomically(
      dir / "run.1.pid",
      process_json({.host = host_name(), .boot = boot_id(), .pid = 1 << 22}, "kim"));
  const auto ended = [&] {
    return resolve_only(folder.path(), open_attempt(host_name())).ended.at(0).entry;
  };
  CHECK(ended().status == Status::missing);
  CHECK(ended().reason == "its submitter ended before it began");
  auto log = runlog::Writer::to_folder(dir, {.project = "p", .run = kRun, .id = "0123456789ab"});
  log.write(runlog::Kind::header, {{"label", "a"}});
  CHECK(ended().status == Status::failed);
  log.write(runlog::Kind::software, {{"part", 1}, {"trainer", "0.1.0"}, {"commit", "ab12"}});
  log.write(runlog::Kind::step, step_of(1, true));
  log.write(runlog::Kind::step, step_of(2, false));
  CHECK(ended().status == Status::partial);
  CHECK(ended().reason == "ended without a footer");
  runlog::Footer footer = test::sample_footer();
  footer.status = Status::nan;
  footer.reason = "loss at step 3";
  log.end(footer);
  CHECK(ended().status == Status::nan);
  CHECK(ended().reason == "loss at step 3");
  CHECK(ended().build == "0.1.0 ab12");
}

TEST_CASE("a living process is adopted, by pid and start time") {
  const test::TemporaryFolder folder;
  write_file_atomically(folder / "trainer", "#!/bin/sh\nexec sleep 30\n");
  ::chmod((folder / "trainer").c_str(), 0755);
  const ProcessRef process = cluster::start_local({.trainer = folder / "trainer",
                                                   .run_dir = folder / kRun,
                                                   .attempt = 1,
                                                   .spec_json = "{}",
                                                   .user = "kim"},
                                                  [](const ProcessRef&) {});
  const jobs::Resolved alive = resolve_only(folder.path(), open_attempt(host_name()));
  CHECK(alive.rest.size() == 1);
  CHECK(alive.ended.empty());
  CHECK(cluster::signal_local(process, SIGKILL));
  ::waitpid(process.pid, nullptr, 0);
  CHECK(resolve_only(folder.path(), open_attempt(host_name())).ended.size() == 1);
}

TEST_CASE("of another host nothing is claimed") {
  const test::TemporaryFolder folder;
  const jobs::Resolved result = resolve_only(folder.path(), open_attempt("another-host"));
  CHECK(result.ended.empty());
  CHECK(result.rest.size() == 1);
}

namespace {

// Ends this process by SIGKILL in the hand-over of job `at`: before anything, when the process is
// known, when it is written down that it is, or after it was let go.
class Dying final : public cluster::Scheduler {
 public:
  static constexpr int kStations = 4;
  Dying(std::unique_ptr<cluster::Scheduler> real, int at) : real_(std::move(real)), at_(at) {}

  const cluster::Cluster& cluster() const override { return real_->cluster(); }
  cluster::Submission submit(const cluster::Job& job, const Accepted& accepted) override {
    die_at(0);
    const cluster::Submission submission = real_->submit(job, [&](const std::string& id) {
      die_at(1);
      accepted(id);
      die_at(2);
    });
    die_at(3);
    ++jobs_;
    return submission;
  }
  std::map<std::filesystem::path, std::string> render(const cluster::Job& job) const override {
    return real_->render(job);
  }
  std::string check(const cluster::Job& job) override { return real_->check(job); }
  cluster::NodeReport probe(const cluster::NodeQuestion& question) override {
    return real_->probe(question);
  }
  cluster::SiteReport examine_site(
      const std::function<void(const std::string&)>& waiting) override {
    return real_->examine_site(waiting);
  }
  std::vector<cluster::JobState> query(std::span<const cluster::OpenJob> jobs) override {
    return real_->query(jobs);
  }
  void cancel(std::span<const cluster::OpenJob> jobs) override { real_->cancel(jobs); }
  std::vector<std::filesystem::path> outputs(const cluster::OpenRun& run) const override {
    return real_->outputs(run);
  }
  cluster::Limits limits() override { return real_->limits(); }
  double poll_s() const override { return real_->poll_s(); }
  bool queues() const override { return real_->queues(); }

 private:
  void die_at(int station) const {
    if (at_ == jobs_ * kStations + station) ::kill(::getpid(), SIGKILL);
  }
  std::unique_ptr<cluster::Scheduler> real_;
  const int at_;
  int jobs_ = 0;
};

}  // namespace

TEST_CASE("killed anywhere in a submission, then again: every run is started once") {
  const int kPoints = test::is_exhaustive() ? 20 : 8;
  for (int at = 0; at < kPoints * Dying::kStations; ++at) {
    CAPTURE(at);
    LocalProject place("echo begun; echo ran >> \"${2%/*}/ran\"; sleep 0.02", kPoints);
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        cluster::Cluster cluster = cluster::read_cluster(place.cluster_file().string());
        Dying dying(cluster::local_scheduler(cluster, place.options.trainer, user_name()), at);
        submit_plan(LocalProject::plan_of(kPoints), dying, place.options, place.events,
                    place.interrupted);
      } catch (...) {
        ::_exit(3);
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));
    place.submit(kPoints);
    for (int i = 1; i <= kPoints; ++i) {
      CAPTURE(i);
      // The last one may have been let go a moment before: its process is known, and was waited
      // for.
      CHECK(read_file_if_exists(place.run_dir(i) / "ran").value_or("") == "ran\n");
    }
    CHECK(place.states().size() == kPoints);
  }
}
