// SPDX-License-Identifier: Apache-2.0
// What every Scheduler promises (lib/cluster/scheduler.h), as functions to be called in test cases.
// The trainer is a small shell script that does what its specification says.
//
// A new kind of cluster is done when all contract_* functions below hold for it:
//
// 1. lib/cluster/NAME/ has a Scheduler and a Backend (lib/cluster/backend.h: `make` at least), and
//    the table in lib/cluster/backends.cpp has its line. A kind that cluster files do not know yet
//    is added to Kind and read in lib/cluster/cluster_file.cpp. Nothing else of the product
//    changes: scripts/check-layers.py tells where it does.
// 2. If jobs learn their rank from variables that trainer/launch/place.h does not have, it gets a
//    column there; variables that tell the job's id or restarts go into scheduler_job().
// 3. A test program gives a ContractPlace and calls each contract_* in a test case of its own:
//    tests/lib/cluster/local/contract_test.cpp, where the cluster can be had by a library call;
//    tests/cluster/slurm_contract_test.cpp, where a real one must be started first
//    (tests/cluster/slurm_place.h). A real one is asked, not a stand-in: what the contract wants to
//    know is what the cluster does. What the nodes start must be able to run a bash script, and
//    `folder` must be seen by them at the same path.
// 4. What only this kind of cluster can do wrong (its error texts, its faults, what it forgets)
//    has tests beside: tests/cluster/slurm_faults_test.cpp shows which.
//
// To run it: `ctest --test-dir BUILD -R '^cluster$'` for this machine, `-R '^slurm$'` for Slurm.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/cluster/scheduler.h"

namespace tessera::test {

struct ContractPlace {
  // A scheduler that starts `trainer`, on a cluster with a gpu entry "cpu".
  std::function<std::unique_ptr<cluster::Scheduler>(const std::filesystem::path& trainer)> make;
  std::filesystem::path folder;  // for run folders; seen by the nodes too
  // Makes of a good job one that `check` refuses; empty: `check` refuses none.
  std::function<void(cluster::Job&)> spoil;
};

inline constexpr double kContractPatience_s = 240;  // machines may be busy

inline bool contract_wait(const std::function<bool()>& condition,
                          double seconds = kContractPatience_s) {
  const double end_s = monotonic_seconds() + seconds;
  while (!condition()) {
    if (monotonic_seconds() > end_s) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return true;
}

// Gets its specification by TESSERA_SPEC or --spec FILE: {"dir": its run folder, "do": commands}.
// Notes in the folder that it ran, its process, its environment, and SIGTERM. It says what it is
// and what it can.
inline std::filesystem::path contract_trainer(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "contract-trainer";
  std::ofstream(path) << R"sh(#!/bin/bash
case "$1" in
  --version) echo "contract 1.0"; exit ;;
  --capabilities) [ ! -e "${0%/*}/dumb" ] || { echo "I do not say" >&2; exit 3; }; echo '{"can": "all"}'; exit ;;
esac
[ "$1" != --spec ] || TESSERA_SPEC=$(cat "$2")
dir=$(sed -n 's/.*"dir":"\([^"]*\)".*/\1/p' <<<"$TESSERA_SPEC")
trap 'echo TERM >>"$dir/signals"; exit 0' TERM
env -0 >"$dir/environment"
echo "$(date +%s.%N)" >>"$dir/ran"
echo "hello from ${dir##*/}"
eval "$(sed -n 's/.*"do":"\([^"]*\)".*/\1/p' <<<"$TESSERA_SPEC")"
)sh";
  std::filesystem::permissions(
      path, std::filesystem::perms::owner_all | std::filesystem::perms::group_exec |
                std::filesystem::perms::group_read | std::filesystem::perms::others_exec |
                std::filesystem::perms::others_read);
  return path;
}

// Until it gets a signal, at most five minutes.
inline constexpr const char* kContractWait = "for i in $(seq 3000); do sleep 0.1; done";

class Contract {
 public:
  explicit Contract(const ContractPlace& place) : place_(place) {
    static int count = 0;
    folder_ =
        place.folder / ("contract-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(folder_);
    scheduler_ = place.make(contract_trainer(folder_));
  }
  Contract(const Contract&) = delete;
  Contract& operator=(const Contract&) = delete;
  // Nothing of a test that failed goes on.
  ~Contract() {
    try {
      scheduler_->cancel(open_);
    } catch (const std::exception&) {
      MESSAGE("jobs of the test may go on");
    }
  }

  cluster::Scheduler& scheduler() { return *scheduler_; }
  const ContractPlace& place() const { return place_; }
  const std::filesystem::path& folder() const { return folder_; }

  cluster::RunStart run(const std::string& name, const std::string& commands) const {
    const std::filesystem::path run_dir = folder_ / name;
    return {.run = name,
            .run_dir = run_dir,
            .spec_json = R"({"dir":")" + run_dir.string() + R"(","do":")" + commands + "\"}"};
  }
  cluster::Job job(std::vector<cluster::RunStart> runs) const {
    // Names are never used before: of this process, of this folder.
    return {.name = folder_.filename().string() + "-" + runs.front().run,
            .project = "contract",
            .runs = std::move(runs),
            .gpu = "cpu",
            .time_limit_s = 600};
  }

  cluster::OpenJob open(const cluster::Job& job, const std::string& id) const {
    cluster::OpenJob open{.job = id, .name = job.name, .since_utc = utc_now()};
    for (const cluster::RunStart& run : job.runs)
      open.runs.push_back({.run = run.run, .attempt = run.attempt, .run_dir = run.run_dir});
    return open;
  }

  // Must be accepted.
  cluster::OpenJob submit(const cluster::Job& job) {
    std::vector<std::string> told;
    const cluster::Submission submission =
        scheduler_->submit(job, [&](const std::string& id) { told.push_back(id); });
    CAPTURE(submission.text);
    REQUIRE(submission.kind == cluster::Submission::Kind::accepted);
    REQUIRE_FALSE(submission.job.empty());
    CHECK(told == std::vector<std::string>{submission.job});
    open_.push_back(open(job, submission.job));
    return open_.back();
  }

  cluster::JobState state(const cluster::OpenJob& job) {
    const std::vector<cluster::JobState> states = scheduler_->query({&job, 1});
    REQUIRE(states.size() == 1);
    return states.front();
  }
  cluster::JobState ended(const cluster::OpenJob& job) {
    cluster::JobState last;
    const bool is_ended = contract_wait([&] {
      last = state(job);
      return last.phase == cluster::JobState::Phase::ended;
    });
    CAPTURE(last.reason);
    REQUIRE(is_ended);
    return last;
  }
  // Its trainer has begun.
  void begun(const cluster::RunStart& run) const {
    REQUIRE(contract_wait([&] { return count(run, "ran") > 0; }));
  }

  // Lines of a file of the run's folder; 0 if there is none.
  static std::size_t count(const cluster::RunStart& run, const std::string& file) {
    const auto text = read_file_if_exists(run.run_dir / file);
    return text ? static_cast<std::size_t>(std::ranges::count(*text, '\n')) : 0;
  }
  std::string output(const cluster::RunStart& run) const {
    std::string all;
    for (const auto& path : scheduler_->outputs({run.run, run.attempt, run.run_dir}))
      all += read_file(path);
    return all;
  }
  static bool has_variable(const cluster::RunStart& run, const std::string& variable) {
    const std::string zero(1, '\0');
    const std::string all =
        zero + read_file_if_exists(run.run_dir / "environment").value_or("(missing)");
    return all.find(zero + variable) != std::string::npos;
  }

 private:
  ContractPlace place_;
  std::filesystem::path folder_;
  std::unique_ptr<cluster::Scheduler> scheduler_;
  std::vector<cluster::OpenJob> open_;
};

// A job goes from hand-over to its end; its files are those that render shows; it printed.
inline void contract_one_job(const ContractPlace& place) {
  Contract contract(place);
  const cluster::Job job = contract.job({contract.run("one", "sleep 1")});
  const auto files = contract.scheduler().render(job);
  CHECK_FALSE(files.empty());
  CHECK_FALSE(std::filesystem::exists(job.runs.front().run_dir));  // render writes nothing
  CHECK(files.at(job.runs.front().run_dir / "run.1.json") == job.runs.front().spec_json + "\n");
  const cluster::OpenJob open = contract.submit(job);
  for (const auto& [path, text] : files) CHECK(read_file(path) == text);
  const auto phase = contract.state(open).phase;
  CHECK((phase == cluster::JobState::Phase::pending || phase == cluster::JobState::Phase::running ||
         phase == cluster::JobState::Phase::ended));
  const cluster::JobState state = contract.ended(open);
  CHECK(state.job == open.job);
  CHECK_FALSE(state.end.has_value());  // without a fault; that it is ok only a footer says
  CHECK(state.exit_code.value_or(0) == 0);
  if (state.queue_s) CHECK(*state.queue_s >= 0);
  CHECK(Contract::count(job.runs.front(), "ran") == 1);
  CHECK(contract.output(job.runs.front()).find("hello from one\n") != std::string::npos);
}

inline void contract_failing_job(const ContractPlace& place) {
  Contract contract(place);
  const cluster::Job job = contract.job({contract.run("oom", "exit 12")});
  const cluster::JobState state = contract.ended(contract.submit(job));
  CHECK(state.end != runlog::Status::ok);
  if (state.exit_code) {
    CHECK(*state.exit_code == 12);
    CHECK(state.end == runlog::Status::oom);
  }
}

inline void contract_environment(const ContractPlace& place) {
  Contract contract(place);
  cluster::RunStart run = contract.run("environment", "true");
  run.env = {{"TESSERA_TEST_SET", "a b\"c'd$e"}, {"TESSERA_TEST_EMPTY", ""}};
  run.unset = {"LOGNAME"};
  contract.ended(contract.submit(contract.job({run})));
  CHECK(Contract::has_variable(run, "TESSERA_TEST_SET=a b\"c'd$e" + std::string(1, '\0')));
  CHECK(Contract::has_variable(run, "TESSERA_TEST_EMPTY=" + std::string(1, '\0')));
  CHECK(Contract::has_variable(run, "PATH="));
  CHECK_FALSE(Contract::has_variable(run, "LOGNAME="));
}

// Cancelled jobs get SIGTERM and a moment; jobs that have ended are passed over.
inline void contract_cancel(const ContractPlace& place) {
  Contract contract(place);
  const cluster::Job job = contract.job({contract.run("cancelled", kContractWait)});
  const cluster::OpenJob open = contract.submit(job);
  contract.begun(job.runs.front());
  CHECK(contract.state(open).phase == cluster::JobState::Phase::running);
  contract.scheduler().cancel({&open, 1});
  const cluster::JobState state = contract.ended(open);
  CHECK(state.end != runlog::Status::ok);
  CHECK(contract_wait([&] { return Contract::count(job.runs.front(), "signals") == 1; }, 5));
  contract.scheduler().cancel({&open, 1});
  CHECK(contract.ended(open).end == state.end);
}

// Runs of one job follow each other; one that fails does not end the rest. A cluster without a
// queue refuses such a job.
inline void contract_two_runs(const ContractPlace& place) {
  Contract contract(place);
  const cluster::Job job =
      contract.job({contract.run("first", "sleep 0.5; echo $(date +%s.%N) >>$dir/end; exit 14"),
                    contract.run("second", "true")});
  if (!contract.scheduler().queues()) {
    // What starts everything at once has no allocation to share.
    CHECK_THROWS_AS(contract.scheduler().submit(job, [](const std::string&) {}), Error);
    CHECK_FALSE(std::filesystem::exists(job.runs[0].run_dir));
    return;
  }
  const cluster::JobState state = contract.ended(contract.submit(job));
  CHECK(state.end != runlog::Status::ok);
  CHECK(Contract::count(job.runs[0], "ran") == 1);
  CHECK(Contract::count(job.runs[1], "ran") == 1);
  CHECK(std::stod(read_file(job.runs[0].run_dir / "end")) <=
        std::stod(read_file(job.runs[1].run_dir / "ran")));
  CHECK(contract.output(job.runs[1]).find("hello from second\n") != std::string::npos);
  CHECK(contract.output(job.runs[1]).find("hello from first\n") == std::string::npos);
}

// A job whose id got lost is found by its name; no other is taken for it.
inline void contract_lost_id(const ContractPlace& place) {
  Contract contract(place);
  const cluster::Job job = contract.job({contract.run("lost", kContractWait)});
  const cluster::OpenJob known = contract.submit(job);
  contract.begun(job.runs.front());
  cluster::OpenJob lost = known;
  lost.job.clear();
  CHECK(contract.state(lost).phase == cluster::JobState::Phase::running);
  CHECK(contract.state(lost).job == known.job);
  // By its name it can be ended too.
  contract.scheduler().cancel({&lost, 1});
  contract.ended(known);
  CHECK(contract.state(lost).phase == cluster::JobState::Phase::ended);
}

// What no cluster has: a name that was never used, an id that is another job's.
inline void contract_absent(const ContractPlace& place) {
  Contract contract(place);
  const cluster::Job never = contract.job({contract.run("never", "true")});
  CHECK(contract.state(contract.open(never, "")).phase == cluster::JobState::Phase::absent);
  const cluster::Job job = contract.job({contract.run("real", "true")});
  const cluster::OpenJob real = contract.submit(job);
  contract.ended(real);
  // Ids are used again: the name must fit.
  CHECK(contract.state(contract.open(never, real.job)).phase == cluster::JobState::Phase::absent);
  // In the order in which they were asked.
  const std::vector<cluster::OpenJob> both{contract.open(never, ""), real};
  const auto states = contract.scheduler().query(both);
  REQUIRE(states.size() == 2);
  CHECK(states[0].phase == cluster::JobState::Phase::absent);
  CHECK(states[1].phase == cluster::JobState::Phase::ended);
  CHECK(contract.scheduler().query({}).empty());
}

// An attempt is handed over once.
inline void contract_conflict(const ContractPlace& place) {
  Contract contract(place);
  const cluster::Job job = contract.job({contract.run("twice", "true")});
  const cluster::OpenJob open = contract.submit(job);
  bool was_accepted = false;
  try {
    contract.scheduler().submit(job, [&](const std::string&) { was_accepted = true; });
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::conflict);
  }
  CHECK_FALSE(was_accepted);
  contract.ended(open);
  CHECK(Contract::count(job.runs.front(), "ran") == 1);
}

// What `accepted` throws goes on to the caller of submit.
inline void contract_accepted_throws(const ContractPlace& place) {
  Contract contract(place);
  const cluster::Job job = contract.job({contract.run("thrown", "true")});
  std::string id;
  CHECK_THROWS_AS(contract.scheduler().submit(job,
                                              [&](const std::string& job_id) {
                                                id = job_id;
                                                throw Error(ExitCode::io, "ledger", "is full");
                                              }),
                  Error);
  CHECK_FALSE(id.empty());
  // A cluster that queues has it, and tells by its name.
  if (!contract.scheduler().queues()) return;
  const cluster::JobState state = contract.ended(contract.open(job, ""));
  CHECK(state.job == id);
}

inline void contract_check(const ContractPlace& place) {
  Contract contract(place);
  cluster::Job job = contract.job({contract.run("checked", "true")});
  CHECK_NOTHROW(contract.scheduler().check(job));
  if (place.spoil) {
    place.spoil(job);
    try {
      contract.scheduler().check(job);
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::refused);
    }
  }
  CHECK_FALSE(std::filesystem::exists(job.runs.front().run_dir));
  CHECK(contract.state(contract.open(job, "")).phase == cluster::JobState::Phase::absent);
}

// What the site says of a file that jobs run on: whole lines, each about something, and nothing is
// started or left behind. Who asks and may wait says so.
inline void contract_examine_site(const ContractPlace& place) {
  Contract contract(place);
  const auto names = [&] {
    std::set<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(contract.folder()))
      paths.insert(entry.path());
    return paths;
  };
  const auto before = names();
  bool waits = false;
  const cluster::SiteReport report =
      contract.scheduler().examine_site([&](const std::string& text) { waits = !text.empty(); });
  CHECK(waits == !report.findings.empty());
  for (const cluster::Finding& finding : report.findings) {
    CAPTURE(finding.text);
    CHECK_FALSE(finding.about.empty());
    CHECK_FALSE(finding.text.empty());
    CHECK((finding.about + finding.text + finding.fix).find('\n') == std::string::npos);
  }
  CHECK(report.nodes_out_of_service >= 0);
  CHECK(names() == before);
}

// A node reads and writes the folder, and starts the trainer only to ask it.
inline void contract_probe(const ContractPlace& place) {
  Contract contract(place);
  int asked = 0;
  const auto question = [&](const std::string& name, bool goes_on) {
    const std::filesystem::path folder = contract.folder() / ("look " + name);
    std::filesystem::create_directories(folder);
    return cluster::NodeQuestion{.name = contract.folder().filename().string() + "-" + name,
                                 .gpu = "cpu",
                                 .folder = folder,
                                 .goes_on = [&asked, goes_on](const cluster::JobState&) {
                                   ++asked;
                                   return goes_on;
                                 }};
  };
  const cluster::NodeReport report = contract.scheduler().probe(question("one", true));
  CHECK_FALSE(report.node.empty());
  CHECK(report.version == "contract 1.0");
  CHECK(report.capabilities == "{\"can\": \"all\"}\n");
  CHECK(report.trainer_fault.empty());
  CHECK(asked > 0);

  std::ofstream(contract.folder() / "dumb") << "";
  const cluster::NodeReport dumb = contract.scheduler().probe(question("dumb", true));
  CHECK(dumb.trainer_fault == "trainer --capabilities: exit code 3: I do not say");
  CHECK(dumb.version.empty());
  CHECK(dumb.capabilities.empty());

  try {
    contract.scheduler().probe(question("impatient", false));
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::interrupted);
  }
  cluster::NodeQuestion unknown = question("unknown", true);
  unknown.gpu = "abacus";
  CHECK_THROWS_AS(contract.scheduler().probe(unknown), Error);
}

}  // namespace tessera::test
