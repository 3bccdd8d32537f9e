// SPDX-License-Identifier: Apache-2.0
// What real jobs do on a real Slurm.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <set>

#include "lib/base/command.h"
#include "lib/cluster/outcome.h"
#include "lib/runlog/reader.h"
#include "tests/cluster/slurm_board.h"

using namespace tessera;
using namespace tessera::cluster;
using namespace tessera::test;
using runlog::Status;
using Phase = JobState::Phase;

namespace {

Status logged(const RunStart& run) {
  return outcome_of_attempt(run.run_dir, run.attempt, {}).status;
}

}  // namespace

TEST_CASE("the trainer runs a point on a node") {
  Board& board = Board::get();
  const JobState state = board.ended("cpu");
  CHECK_FALSE(state.end.has_value());
  CHECK(state.exit_code == 0);
  CHECK(state.queue_s.has_value());
  const RunStart& run = board.run("cpu");
  CAPTURE(board.output(run));
  CHECK(logged(run) == Status::ok);
  CHECK(read_file(run.run_dir / "exit.1.0") == "0\n");
  const std::string log = read_file(run.run_dir / "log.1.0.0.jsonl");
  CHECK(log.find(R"("SLURM_JOB_ID":")" + board.open("cpu").job) != std::string::npos);
}

TEST_CASE("a script that a person starts again makes a further attempt of the run") {
  Board& board = Board::get();
  board.ended("cpu");
  const RunStart& run = board.run("cpu");
  const CommandResult again =
      run_command({"sbatch", "--parsable", (run.run_dir / "script.1.sh").string()});
  CAPTURE(again.err);
  REQUIRE(again.exit_code == 0);
  REQUIRE(contract_wait([&] { return std::filesystem::exists(run.run_dir / "exit.2.0"); }));
  CHECK(outcome_of_attempt(run.run_dir, 2, {}).status == Status::ok);
  CHECK(std::filesystem::exists(run.run_dir / "log.1.0.0.jsonl"));
  CHECK(std::filesystem::exists(run.run_dir / "out.2.0.0"));
  // It has the name of the first, which stays the one that is meant.
  OpenJob by_name = board.open("cpu");
  by_name.job.clear();
  CHECK(board.scheduler().query({&by_name, 1}).front().job == board.open("cpu").job);
}

TEST_CASE("one task a rank on two nodes, each with its own output") {
  Board& board = Board::get();
  CHECK_FALSE(board.ended("two-nodes").end.has_value());
  const RunStart& run = board.run("two-nodes");
  std::set<std::string> nodes;
  for (int rank = 0; rank < 4; ++rank) {
    const std::string text = read_file(run.run_dir / fmt::format("out.1.0.{}", rank));
    const std::string begin = fmt::format("rank {} of 4 on ", rank);
    const std::size_t at = text.find(begin);
    REQUIRE(at != std::string::npos);
    nodes.insert(text.substr(at + begin.size()));
  }
  CHECK(nodes.size() == 2);
}

TEST_CASE("points that share an allocation are runs of their own") {
  Board& board = Board::get();
  CHECK_FALSE(board.ended("packed").end.has_value());
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(logged(board.run("packed", i)) == Status::ok);
    CHECK(std::filesystem::exists(board.run("packed", i).run_dir / "exit.1.0"));
  }
}

TEST_CASE("the elements of an array are jobs of their own") {
  Board& board = Board::get();
  std::vector<OpenJob> elements;
  for (std::size_t i = 0; i < 3; ++i) {
    OpenJob element = board.open("array");
    element.job = element_id(element.job, i);
    element.runs = {element.runs[i]};
    elements.push_back(element);
  }
  std::vector<JobState> states;
  CHECK(contract_wait(
      [&] {
        states = board.scheduler().query(elements);
        return std::ranges::all_of(states, [](const auto& s) { return s.phase == Phase::ended; });
      },
      kPatience_s));
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(states.at(i).job == elements[i].job);
    CHECK_FALSE(states[i].end.has_value());
    CHECK(logged(board.run("array", i)) == Status::ok);
    CHECK_FALSE(board.output(board.run("array", i)).empty());
  }
  OpenJob whole = board.open("array");
  whole.job.clear();
  const JobState found = board.scheduler().query({&whole, 1}).front();
  CHECK(found.job == board.open("array").job);
  CHECK(found.phase == Phase::ended);
}

TEST_CASE("a failing trainer's exit code comes through") {
  Board& board = Board::get();
  const JobState state = board.ended("failing");
  CHECK(state.end == Status::nan);
  CHECK(state.exit_code == 14);
  CHECK(board.output(board.run("failing")).find("no good\n") != std::string::npos);
  CHECK(logged(board.run("failing")) == Status::nan);
  const JobState crashed = board.ended("signal");
  CAPTURE(crashed.end_reason);
  CAPTURE(board.output(board.run("signal")));
  CHECK(crashed.end == Status::failed);
  CHECK(crashed.exit_code == 128 + 11);
}

TEST_CASE("a rank that fails ends the others, who are told, and its code is the run's") {
  Board& board = Board::get();
  CHECK(board.ended("rank-fails").exit_code == 12);
  CHECK(Contract::count(board.run("rank-fails"), "signals") == 1);
  CHECK(logged(board.run("rank-fails")) == Status::oom);
}

TEST_CASE("a dependency that can never be met is told, one on any end is met") {
  Board& board = Board::get();
  board.ended("failing");
  JobState state;
  CHECK(contract_wait([&] {
    state = board.state("dependent");
    return state.never_starts;
  }));
  CHECK(state.phase == Phase::pending);
  CHECK(state.reason == "DependencyNeverSatisfied");
  CHECK_FALSE(board.ended("after").end.has_value());
}

TEST_CASE("jobs that can never start say so, and can be cancelled") {
  Board& board = Board::get();
  for (const auto& [name, reason] :
       {std::pair("many-nodes", "PartitionNodeLimit"), {"long", "PartitionTimeLimit"}}) {
    if (const std::string refusal = board.refusal(name); !refusal.empty()) {
      CHECK(refusal ==
            "Batch job submission failed: Requested node configuration is not available");
      continue;
    }
    JobState state;
    CHECK(contract_wait([&, job = name] {
      state = board.state(job);
      return state.never_starts;
    }));
    CHECK(state.phase == Phase::pending);
    CHECK(state.reason == reason);
    board.scheduler().cancel({&board.open(name), 1});
    CHECK(board.ended(name).end == Status::cancelled);
  }
}

TEST_CASE("a cancelled run has a true footer, and no further run of its job begins") {
  Board& board = Board::get();
  const RunStart& run = board.run("cancelled");
  CHECK(contract_wait([&] {
    const auto log = read_file_if_exists(run.run_dir / "log.1.0.0.jsonl");
    return log && log->find(R"("warmup":false)") != std::string::npos;
  }));
  board.scheduler().cancel({&board.open("cancelled"), 1});
  const JobState state = board.ended("cancelled");
  CHECK(state.end == Status::cancelled);
  CHECK(state.end_reason.starts_with("CANCELLED"));
  const Outcome outcome = outcome_of_attempt(run.run_dir, 1, {});
  CHECK(outcome.status == Status::partial);
  CHECK(outcome.reason == "interrupted");
  CHECK_FALSE(std::filesystem::exists(board.run("cancelled", 1).run_dir / "log.1.0.0.jsonl"));
}

TEST_CASE("a trainer that is not there") {
  Board& board = Board::get();
  const JobState state = board.ended("missing");
  CHECK(state.end == Status::start_fail);
  CHECK(state.exit_code == 127);
  CHECK(board.output(board.run("missing")).find("/no/such/trainer is not there") !=
        std::string::npos);
}

TEST_CASE("a run's folder that cannot be written") {
  const JobState state = Board::get().ended("unwritable");
  CHECK(state.end == Status::start_fail);
  CHECK(state.end_reason.find("cannot be written") != std::string::npos);
}

TEST_CASE("a job over its memory") {
  const JobState state = Board::get().ended("memory");
  CAPTURE(state.end_reason);
  CAPTURE(Board::get().output(Board::get().run("memory")));
  CHECK(state.end == Status::host_oom);
}

TEST_CASE("GPUs of the node are the step's") {
  Board& board = Board::get();
  CHECK_FALSE(board.ended("gpus").end.has_value());
  for (int rank = 0; rank < 2; ++rank) {
    const std::string text = read_file(board.run("gpus").run_dir / fmt::format("out.1.0.{}", rank));
    const std::size_t at = text.find("GPUs ");
    REQUIRE(at != std::string::npos);
    const std::string devices = text.substr(at + 5, text.find('\n', at) - at - 5);
    CHECK(std::ranges::count(devices, ',') == 1);  // both: each takes its own by its local rank
  }
}

TEST_CASE("nothing of the submitter's environment is in the job or in any file") {
  Board& board = Board::get();
  board.ended("environment");
  const RunStart& run = board.run("environment");
  CHECK(Contract::has_variable(run, "PATH="));
  CHECK(Contract::has_variable(run, "SLURM_JOB_ID=" + board.open("environment").job));
  CHECK_FALSE(Contract::has_variable(run, "TESSERA_TEST_TOKEN="));
  CHECK_FALSE(Contract::has_variable(run, "SLURM_SECRET="));
  // Slurm's own files too, where this user may read them.
  for (const std::filesystem::path& folder :
       {slurm_folder(), slurm_state() / "state", slurm_state() / "log"}) {
    const CommandResult found = run_command({"grep", "-rl", kSecret, folder.string()});
    CHECK(found.out.empty());
  }
}

TEST_CASE("all are asked with one squeue, and one sacct where the queue cannot say") {
  Board& board = Board::get();
  board.ended("failing");
  const FakePrograms counted;
  for (const char* program : {"squeue", "sacct"}) {
    counted.add(program, fmt::format("echo {0} >>{1}\nexec /usr/bin/{0} \"$@\"", program,
                                     (counted / "calls").string()));
  }
  const std::vector<OpenJob> running{board.open("limit-trainer"), board.open("limit-shell"),
                                     board.open("cpu"), board.open("two-nodes")};
  for (const JobState& state : board.scheduler().query(running))
    CHECK(state.phase != Phase::absent);
  CHECK(read_file(counted / "calls") == "squeue\n");
  std::filesystem::remove(counted / "calls");
  std::vector<OpenJob> many = running;
  for (int i = 0; i < 50; ++i) {
    many.push_back(board.open("failing"));
    many.push_back({.name = fmt::format("never-{}", i), .since_utc = utc_now()});
  }
  CHECK(board.scheduler().query(many).size() == many.size());
  CHECK(read_file(counted / "calls") == "squeue\nsacct\n");
}

TEST_CASE("a run that is told that its time limit is near ends with a true footer") {
  Board& board = Board::get();
  board.ended("limit-trainer");
  const RunStart& run = board.run("limit-trainer");
  CAPTURE(board.output(run));
  const Outcome outcome = outcome_of_attempt(run.run_dir, 1, {});
  CHECK(outcome.status == Status::partial);
  CHECK(outcome.reason == "time limit near");
}

TEST_CASE("a job at its time limit ends with what runs, and says so") {
  Board& board = Board::get();
  const JobState state = board.ended("limit-shell");
  CHECK(state.end == Status::timeout);
  CHECK(state.end_reason.starts_with("TIMEOUT after "));
  CHECK_FALSE(state.exit_code.has_value());
  CHECK(Contract::count(board.run("limit-shell"), "ran") == 1);
  CHECK(Contract::count(board.run("limit-shell", 1), "ran") == 0);
}
