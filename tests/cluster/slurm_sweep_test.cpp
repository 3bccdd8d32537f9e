// SPDX-License-Identifier: Apache-2.0
// submit, trainer and collect as a user runs them on a Slurm cluster.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "lib/base/command.h"
#include "lib/base/csv.h"
#include "lib/base/file.h"
#include "lib/ledger/ledger.h"
#include "tests/cluster/slurm_desk.h"

using namespace tessera;
using namespace tessera::test;

namespace {

// Names of all jobs of this user that Slurm has ever had and that begin so, each as often as it had
// it.
std::vector<std::string> jobs_of(const std::string& project) {
  const CommandResult result =
      run_command({"squeue", "--noheader", "--states=all", "--me", "--format=%j"});
  REQUIRE(result.exit_code == 0);
  std::vector<std::string> names;
  std::istringstream lines(result.out);
  for (std::string name; std::getline(lines, name);) {
    if (name.starts_with(project + "--")) names.push_back(name);
  }
  return names;
}

}  // namespace

TEST_CASE("a sweep on one and two nodes, then its table; nothing is run twice, no secret is kept") {
  const Desk desk("sweep");
  const CommandResult first = desk.run("submit", Desk::sweep("sw", {"4"}, {"--RUN", "--wait"}));
  CAPTURE(first.out);
  CAPTURE(first.err);
  CHECK(first.exit_code == 0);
  CHECK(first.out.find("3 ok, 0 not ok") != std::string::npos);
  const CommandResult second = desk.run("submit", Desk::sweep("sw", {"4"}, {"--RUN"}));
  CHECK(second.exit_code == 0);
  CHECK(second.out.find("0 to start, 3 done before") != std::string::npos);
  CHECK(jobs_of("sw").size() == 3);

  const CommandResult collected = desk.run("collect", {});
  CAPTURE(collected.err);
  CHECK(collected.exit_code == 0);
  std::set<std::string> shapes;
  std::set<std::string> jobs;
  for (auto& row : desk.rows("sw")) {
    CHECK(row["status"] == "ok");
    CHECK(row["steps_measured"] == "6");
    CHECK(row["cluster"] == "dev");
    CHECK_FALSE(row["MFU"].empty());
    CHECK_FALSE(row["queue_s"].empty());
    shapes.insert(row["# GPUs"] + " on " + row["nodes"]);
    jobs.insert(row["job"]);
  }
  CHECK(fmt::format("{}", fmt::join(shapes, ", ")) == "1 on 1, 2 on 1, 4 on 2");
  CHECK(jobs.size() == 3);
  // The log says itself which job it is of.
  for (const auto& [run, state] : desk.states("sw")) {
    const std::string log = read_file(desk.folder() / "runs/sw" / run / "log.1.0.0.jsonl");
    CHECK(log.find(fmt::format(R"("job":"{}")", state.attempts.at(0).job)) != std::string::npos);
  }
  // Everything that was written, the scripts, logs and ledger too.
  CHECK(run_command({"grep", "-rl", kPlanted, desk.folder().string()}).out.empty());
}

TEST_CASE("runs of one shape share an allocation, and each has its row") {
  const Desk desk("pack");
  const CommandResult done = desk.run(
      "submit",
      Desk::sweep("pk", {"4", "8"},
                  {"--where", "gpus < 4", "--RUN", "--wait", "--pack", "1h", "--time", "5m"}));
  CAPTURE(done.out);
  CAPTURE(done.err);
  CHECK(done.exit_code == 0);
  CHECK(done.out.find("4 ok, 0 not ok") != std::string::npos);
  CHECK(jobs_of("pk").size() == 2);
  CHECK(desk.run("collect", {"pk"}).exit_code == 0);
  std::set<std::string> jobs;
  int measured = 0;
  for (const auto& row : desk.rows("pk")) {
    if (row.at("status") != "ok") continue;  // the two that were left out
    ++measured;
    jobs.insert(row.at("job"));
  }
  CHECK(measured == 4);
  CHECK(jobs.size() == 2);
}

TEST_CASE(
    "submit is killed at every hand-over, before and after Slurm has the job: each is there once") {
  const Desk desk("killed");
  // Jobs stay in the queue: what counts is that they are there.
  desk.write_cluster(", extra: [\"--hold\"]");
  const FakePrograms programs;
  const auto turn = programs / "turn";
  write_file_atomically(turn, "before\n");
  const std::string real = run_command({"which", "-a", "sbatch"}).out;
  const std::string path = real.substr(0, real.find('\n'));
  // Takes turns: ends its caller before the job is handed over, as it is handed over, and after.
  programs.add("sbatch", fmt::format(R"(case $(cat {0}) in
  before) echo during >{0}; kill -KILL $PPID; sleep 5; exit 1 ;;
  during) echo after >{0}; setsid {1} "$@" >/dev/null 2>&1 & kill -KILL $PPID; sleep 5; exit 1 ;;
  *) echo before >{0}; {1} "$@" >/dev/null 2>&1; kill -KILL $PPID; sleep 5; exit 1 ;;
esac)",
                                     turn.string(), path));
  constexpr std::size_t kPoints = 20;  // 7 batches on 1, 2 and 4 ranks, but for one
  const std::vector<std::string> command =
      Desk::sweep("kl", {"4", "8", "12", "16", "20", "24", "28"},
                  {"--where", "not (gpus == 4 and global_batch == 28)", "--RUN"});
  int killed = 0;
  CommandResult last;
  for (int tries = 0; tries < 100; ++tries) {
    last = desk.run("submit", command);
    if (last.exit_code != 128 + 9) break;
    ++killed;
  }
  CAPTURE(last.out);
  CAPTURE(last.err);
  CHECK(last.exit_code == 0);
  CHECK(killed >= static_cast<int>(kPoints));
  MESSAGE(killed << " submits were killed");
  std::vector<std::string> names = jobs_of("kl");
  CHECK(names.size() == kPoints);
  // One run each, whatever the attempt.
  std::map<std::string, int> confirmed;
  for (const auto& [run, state] : desk.states("kl")) {
    for (const auto& attempt : state.attempts) confirmed[run] += attempt.confirmed ? 1 : 0;
  }
  CHECK(confirmed.size() == kPoints);
  for (const auto& [run, count] : confirmed) {
    CAPTURE(run);
    CHECK(count == 1);
  }
  CHECK(desk.run("submit", {"cancel", "kl"}).exit_code == 0);
  const CommandResult status = desk.run("submit", {"status", "kl"});
  CAPTURE(status.out);
  CHECK(status.out.find("20 runs: 20 cancelled") != std::string::npos);
}
