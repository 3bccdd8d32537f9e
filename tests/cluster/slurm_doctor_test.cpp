// SPDX-License-Identifier: Apache-2.0
// submit doctor on a real cluster, with files that fit it and files that do not.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "lib/base/command.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "tests/cluster/slurm_desk.h"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr int kToMend = static_cast<int>(ExitCode::refused);

bool has(const CommandResult& result, std::string_view text) {
  return result.out.find(text) != std::string::npos;
}

// What it asked with: no job of it waits or runs, no file is left.
void check_nothing_is_left(const Desk& desk) {
  CHECK(contract_wait([] {
    const CommandResult queue = run_command(
        {"squeue", "--noheader", "--me", "--states=pending,running,suspended", "--format=%j"});
    return queue.exit_code == 0 && queue.out.find("tessera-doctor") == std::string::npos;
  }));
  CHECK_FALSE(std::filesystem::exists(desk.folder() / "runs/.doctor"));
}

std::vector<std::string> plan(const std::vector<std::string>& more) {
  std::vector<std::string> words{"-m",
                                 "./tiny.yaml",
                                 "--seq_lens",
                                 "16",
                                 "--batch_sizes",
                                 "2",
                                 "-g",
                                 "2",
                                 "-t",
                                 "fp32",
                                 "-c",
                                 "./dev.yaml",
                                 "--microbatch_size",
                                 "1",
                                 "--set",
                                 "threads=1",
                                 "--project",
                                 "doc"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

TEST_CASE("doctor: a cluster that is as its file says; what its trainer can is known to plans") {
  const Desk desk("doctor");
  const CommandResult result =
      desk.run("submit", {"doctor", "-c", "./dev.yaml", "--patience", "5m"});
  CAPTURE(result.out);
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  CHECK(has(result, "ok    slurm "));
  CHECK(has(result, "cluster dev\n"));
  CHECK(has(result, "4 nodes with 2 ranks each\n"));
  CHECK(has(result, "node0"));
  CHECK(has(result, " reads and writes the workspace; "));
  CHECK(has(result, ": devices cpu"));
  CHECK(has(result, "Nothing to mend.\n"));
  check_nothing_is_left(desk);
  CHECK(run_command({"grep", "-rl", kPlanted, desk.folder().string()}).out.empty());

  const CommandResult sharded =
      desk.run("submit", plan({"--sharding_strategy", "FULL_SHARD", "NO_SHARD"}));
  CAPTURE(sharded.out);
  CAPTURE(sharded.err);
  CHECK(sharded.exit_code == 0);
  CHECK(sharded.err.find("--RUN would drop 1 point: sharding_strategy FULL_SHARD: the trainer has "
                         "NO_SHARD (trainer ") != std::string::npos);
  CHECK(sharded.err.find("; submit doctor asks again)") != std::string::npos);
  const CommandResult dropped =
      desk.run("submit", plan({"--sharding_strategy", "FULL_SHARD", "--RUN"}));
  CHECK(dropped.exit_code == static_cast<int>(ExitCode::empty));
  CHECK(dropped.err.find("1 capability") != std::string::npos);
}

TEST_CASE("doctor: what is wrong is named with what would be right") {
  const Desk desk("doctor-wrong");
  const auto doctor = [&] {
    const CommandResult result = desk.run("submit", {"doctor", "./dev.yaml", "--patience", "5m"});
    INFO(result.out);
    CHECK(result.err.find("to mend") != std::string::npos);
    CHECK(result.exit_code == kToMend);
    check_nothing_is_left(desk);
    return result;
  };
  SUBCASE("a partition") {
    desk.write_cluster(", partition: gpus");
    CHECK(has(doctor(), "MEND  partition   there is no 'gpus'\n"));
  }
  SUBCASE("an account") {
    desk.write_cluster(", qos: gold");
    const CommandResult result = doctor();
    CHECK(has(result, "MEND  qos         'gold' is none of yours\n"));
    CHECK(has(result, "-> slurm.qos: one of normal, tiny\n"));
    // Slurm itself is asked too.
    CHECK(has(result, "the cluster would not take it: "));
  }
  SUBCASE("the trainer") {
    const auto file = desk.folder() / "dev.yaml";
    std::string text = read_file(file);
    text.replace(text.find(slurm_trainer().string()), slurm_trainer().string().size(),
                 "/no/trainer");
    desk.write("dev.yaml", text);
    const CommandResult result = doctor();
    CHECK(has(result,
              "trainer --version: exit code 127: /no/trainer is not there or not executable"));
    CHECK(has(result, "-> trainer: {path: ...}, where nodes have it\n"));
  }
  SUBCASE("modules that nodes do not have") {
    const auto file = desk.folder() / "dev.yaml";
    std::string text = read_file(file);
    text.insert(text.find("trainer: {") + 10, "modules: [nothing/1.0], ");
    desk.write("dev.yaml", text);
    const CommandResult result = doctor();
    CHECK(has(result, "trainer.modules: a node cannot load them; modules that nodes have"));
    const CommandResult run =
        desk.run("submit", plan({"--RUN", "--wait", "--sharding_strategy", "NO_SHARD"}));
    CHECK(run.exit_code == static_cast<int>(ExitCode::runs_failed));
    const CommandResult status = desk.run("submit", {"status"});
    CAPTURE(run.out);
    CAPTURE(run.err);
    CAPTURE(status.out);
    CHECK(has(status, "start-fail"));
    CHECK(has(status, "its modules could not be loaded"));
  }
  SUBCASE("a workspace that nodes do not see") {
    desk.write_cluster(
        fmt::format(", prologue: \"rm -rf {}/runs/.doctor/*\"", desk.folder().string()));
    CHECK(has(doctor(), " is not there on the node; a workspace that both see\n"));
  }
  SUBCASE("a workspace of another machine under the same name") {
    desk.write_cluster(
        fmt::format(", prologue: \"for f in {}/runs/.doctor/*/question; do echo other >$f; done\"",
                    desk.folder().string()));
    CHECK(has(doctor(), " has a folder of this name, but it is not this machine's"));
  }
  SUBCASE("jobs that never start") {
    desk.write_cluster(", extra: [\"--hold\"]");
    CHECK(has(doctor(), "never starts: JobHeldUser\n"));
  }
}

TEST_CASE(
    "doctor: who has no patience is told why it waits; a silent cluster is no fault of the file") {
  const Desk desk("doctor-silent");
  desk.write_cluster(", extra: [\"--begin=now+1hour\"]");
  const CommandResult waits =
      desk.run("submit", {"doctor", "-c", "./dev.yaml", "--patience", "3s"});
  CAPTURE(waits.out);
  CHECK(waits.exit_code == static_cast<int>(ExitCode::unreachable));
  CHECK(has(waits, "no answer from a node within 3 s: "));
  CHECK(has(waits, "the job still waits: BeginTime\n"));
  CHECK(has(waits, "-> wait longer: --patience 30m\n"));
  check_nothing_is_left(desk);
  CHECK(desk.run("submit", {"doctor", "-c", "./dev.yaml", "--no-jobs"}).exit_code == 0);

  const FakePrograms fake;
  fake.add(
      "sinfo",
      "echo 'slurm_load_partitions: Unable to contact slurm controller (connect failure)' >&2; "
      "exit 1");
  const CommandResult silent =
      desk.run("submit", {"doctor", "-c", "./dev.yaml", "--patience", "5m"});
  CHECK(silent.exit_code == static_cast<int>(ExitCode::unreachable));
  CHECK(has(silent, "Unable to contact slurm controller"));
}

TEST_CASE("doctor: a node that is out of service is no fault of the file [alone][root]") {
  const Desk desk("doctor-drained");
  const auto update = [](const std::string& state) {
    return run_command({"scontrol", "update", "nodename=node03", "state=" + state, "reason=test"})
        .exit_code;
  };
  REQUIRE(update("drain") == 0);
  const CommandResult result = desk.run("submit", {"doctor", "-c", "./dev.yaml", "--no-jobs"});
  CHECK(update("resume") == 0);
  CAPTURE(result.out);
  CHECK(result.exit_code == 0);
  CHECK(has(result, "note  partition   main: 4 nodes, 1 of them not to be used now"));
}
