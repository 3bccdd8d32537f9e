// SPDX-License-Identifier: Apache-2.0
// A sweep from submit to its rows, and what is said on the way.
#include <fmt/format.h>

#include <algorithm>

#include "apps/submit/trainers/capabilities.h"
#include "tests/apps/end_to_end/end_to_end.h"

using namespace tessera;
using test::count_of;
using test::EndToEnd;
using test::kSubmit;
using test::living;
using test::wait_until;

TEST_CASE("submit, train, collect: every point is trained once and has its row") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "[1, 2, 3]", 12,
                  "exclude: [{when: global_batch == 3, reason: odd}]\nrepeats: 2\n");
  const CommandResult first = e2e.run("submit", kSubmit);
  CAPTURE(first.out);
  CAPTURE(first.err);
  CHECK(first.exit_code == 0);
  CHECK(first.out.find("4 ok, 0 not ok") != std::string::npos);
  CHECK(e2e.logs().size() == 4);
  CHECK(e2e.states().size() == 4);

  const CommandResult collected = e2e.run("collect", {});  // the last project used
  CAPTURE(collected.err);
  CHECK(collected.exit_code == 0);
  const auto rows = e2e.results();
  // Two points, and the dropped one as skipped.
  CHECK(std::ranges::count_if(
            rows, [](const auto& row) { return row.find(",ok,") != std::string::npos; }) == 2);
  CHECK(std::ranges::count_if(
            rows, [](const auto& row) { return row.find(",skipped,") != std::string::npos; }) == 1);

  const CommandResult second = e2e.run("submit", kSubmit);
  CHECK(second.exit_code == 0);
  CHECK(second.out.find("0 to start, 4 done before") != std::string::npos);
  CHECK(e2e.logs().size() == 4);

  const CommandResult status = e2e.run("submit", {"status", "e2e", "--all"});
  CHECK(status.exit_code == 0);
  CHECK(count_of(status.out, "\nok ") == 4);
  const int usage = static_cast<int>(ExitCode::usage);
  CHECK(e2e.run("submit", {"status", "e2e", "more"}).exit_code == usage);
  CHECK(e2e.run("submit", {"status", "e2e", "--json"}).exit_code == usage);

  const CommandResult again =
      e2e.run("submit", {"--sweep", "sweep.yaml", "--RUN", "--only", "all"});
  CHECK(again.exit_code == 0);
  CHECK(e2e.logs().size() == 8);
  for (const auto& [run, state] : e2e.states()) CHECK(state.attempts.size() == 2);
}

TEST_CASE("a token file is one point from wherever submit is called, and its runs find it") {
  const EndToEnd e2e;
  // With a slash, a model is looked for beside the sweep file.
  const auto write_sweep = [&](const std::string& name, const std::string& more) {
    e2e.write_sweep(name, "[1]", 12, more);
    std::string yaml = read_file(e2e.folder() / name);
    write_file_atomically(e2e.folder() / name, yaml.insert(yaml.find("tiny.yaml"), "./"));
  };
  write_sweep("sweep.yaml", "");
  std::string raw;
  for (int i = 0; i < 1000; ++i) raw += {static_cast<char>(i * 7 % 128), '\0'};
  write_file_atomically(e2e.folder() / "a.u16", raw);
  const std::string path = e2e.folder() / "a.u16";
  const auto id = [&](const std::string& from, const std::vector<std::string>& more) {
    std::vector<std::string> words{"/usr/bin/env", "-C",     from, EndToEnd::program("submit"),
                                   "--json",       "--sweep"};
    words.insert(words.end(), more.begin(), more.end());
    const CommandResult plan = run_command(words);
    CAPTURE(plan.err);
    REQUIRE(plan.exit_code == 0);
    CHECK(plan.out.find("\"data\":\"" + path + "\"") != std::string::npos);
    const std::size_t at = plan.out.find("\"id\":\"");
    REQUIRE(at != std::string::npos);
    return plan.out.substr(at, 20);
  };
  const std::string here = e2e.folder().path();
  const std::string sweep = e2e.folder() / "sweep.yaml";
  const std::string one = id(here, {"sweep.yaml", "--set", "data=a.u16"});
  CHECK(id("/", {sweep, "--set", "data=" + path}) == one);
  std::filesystem::create_directory(e2e.folder() / "other");
  CHECK(id(e2e.folder() / "other", {sweep, "--set", "data=../a.u16"}) == one);
  write_sweep("named.yaml", "overrides: [{when: \"steps == 12\", set: {data: a.u16}}]\n");
  CHECK(id(here, {"named.yaml"}) == one);
  CHECK(id("/", {e2e.folder() / "named.yaml"}) == one);
  // In an expression it is called by its name, as a model is.
  write_sweep("narrow.yaml", "exclude: [{when: \"data != 'a.u16'\", reason: other}]\n");
  CHECK(id(here, {"narrow.yaml", "--set", "data=a.u16"}) == one);

  const CommandResult missing =
      e2e.run("submit", {"--sweep", "sweep.yaml", "--RUN", "--set", "data=none.u16"});
  CHECK(missing.exit_code == static_cast<int>(ExitCode::input));
  CHECK(missing.err ==
        "submit: data: no token file '" + (e2e.folder() / "none.u16").string() + "'\n");
  CHECK(e2e.logs().empty());

  const CommandResult run =
      e2e.run("submit", {"--sweep", "sweep.yaml", "--RUN", "--set", "data=a.u16"});
  CAPTURE(run.err);
  CHECK(run.exit_code == 0);
  REQUIRE(e2e.logs().size() == 1);
  CHECK(read_file(e2e.logs()[0]).find("\"data_tokens\":1000") != std::string::npos);
}

TEST_CASE("submit --profile profiles its runs, and collect show tells") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "1", 12);
  const CommandResult submitted =
      e2e.run("submit", {"--sweep", "sweep.yaml", "--RUN", "--profile"});
  CAPTURE(submitted.err);
  CHECK(submitted.exit_code == 0);
  REQUIRE(e2e.logs().size() == 1);
  const std::string log = read_file(e2e.logs()[0]);
  CHECK(count_of(log, "\"t\":\"profile\"") >= 1);
  CHECK(count_of(log, "\"budget\":{\"gemm\":") == 1);
  const std::string run = e2e.states().begin()->first;
  const CommandResult shown = e2e.run("collect", {"show", run});
  CHECK(shown.out.find("\nProfile: shares of a step behind the measured ones\n  GEMM ") !=
        std::string::npos);
  // Not of the point: the same run is done, profiled or not.
  const CommandResult again = e2e.run("submit", {"--sweep", "sweep.yaml", "--RUN"});
  CHECK(again.out.find("0 to start, 1 done before") != std::string::npos);
}

TEST_CASE("what was not ok before is said again, and --only says what it leaves out") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "[1, 2]", 12);
  REQUIRE(e2e.run("submit", kSubmit).exit_code == 0);
  // A run that fails for good: its variable is not what the trainer finds.
  write_file_atomically(e2e.folder() / "cluster.yaml",
                        "tessera_cluster: 1\nkind: local\ngpus: {cpu: {per_node: 1}}\n"
                        "trainer: {path: failing}\n");
  write_file_atomically(e2e.folder() / "failing", "#!/bin/sh\nexit 11\n");
  std::filesystem::permissions(e2e.folder() / "failing", std::filesystem::perms::owner_all);
  std::vector<std::string> failing = kSubmit;
  failing.insert(failing.end(), {"-c", "cluster.yaml"});
  const CommandResult first = e2e.run("submit", failing);
  CAPTURE(first.out);
  CHECK(first.exit_code == static_cast<int>(ExitCode::runs_failed));
  CHECK(first.out.find("0 ok, 2 not ok in") != std::string::npos);
  const CommandResult second = e2e.run("submit", failing);
  CAPTURE(second.out);
  CHECK(second.exit_code == static_cast<int>(ExitCode::runs_failed));
  CHECK(second.out.find("0 to start, 2 not ok before (2 start-fail)\n") != std::string::npos);
  CHECK(count_of(second.err, "\n") == 1);
  CHECK(second.err.find("2 runs did not end ok, before; ") != std::string::npos);
  std::vector<std::string> only_oom = failing;
  only_oom.insert(only_oom.end(), {"--only", "oom"});
  const CommandResult oom = e2e.run("submit", only_oom);
  CHECK(oom.exit_code == 0);
  CHECK(oom.out.find("0 to start, 2 not selected by --only oom\n") != std::string::npos);
  std::vector<std::string> only_failed = failing;
  only_failed.insert(only_failed.end(), {"--only", "failed"});
  CHECK(e2e.run("submit", only_failed).out.find("2 to start\n") != std::string::npos);
}

TEST_CASE("what the trainer lacks is dropped with its reason before anything starts") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "2", 12,
                  "include: [{model: tiny.yaml, seq_len: 16, global_batch: 2, gpus: 2, "
                  "sharding_strategy: FULL_SHARD}]\n");
  const CommandResult plan = e2e.run("submit", {"--sweep", "sweep.yaml"});
  CAPTURE(plan.err);
  CHECK(plan.out.find("\n2 points of project e2e. Submit with --RUN.\n") != std::string::npos);
  CHECK(
      plan.err ==
      "submit: --RUN would drop 1 point: sharding_strategy FULL_SHARD: the trainer has NO_SHARD\n");
  const CommandResult run = e2e.run("submit", kSubmit);
  CAPTURE(run.out);
  CHECK(run.exit_code == 0);
  CHECK(run.out.find("1 run, 1 to start; 1 point dropped\n") != std::string::npos);
  CHECK(run.out.find("1 ok, 0 not ok") != std::string::npos);
  CHECK(e2e.run("collect", {}).exit_code == 0);
  REQUIRE(e2e.results().size() == 3);
  CHECK(
      e2e.results()[2].find("capability: sharding_strategy FULL_SHARD: the trainer has NO_SHARD") !=
      std::string::npos);
}

TEST_CASE("a point of several gpus runs as so many ranks, and ends with submit's Ctrl-C") {
  if (!std::filesystem::exists(EndToEnd::program("tessera-gloo.so"))) {
    MESSAGE("skipped: built without Gloo, no several ranks");
    return;
  }
  const EndToEnd e2e;
  const std::string two = "defaults: {cluster: local, gpu: cpu, gpus: 2, threads: 1, ";
  const auto write_sweep = [&](int steps) {
    e2e.write_sweep("sweep.yaml", "4", steps);
    std::string yaml = read_file(e2e.folder() / "sweep.yaml");
    const std::string one = "defaults: {cluster: local, gpu: cpu, gpus: 1, threads: 1, ";
    REQUIRE(yaml.find(one) != std::string::npos);
    yaml.replace(yaml.find(one), one.size(), two + "sharding_strategy: NO_SHARD, ");
    write_file_atomically(e2e.folder() / "sweep.yaml", yaml);
  };
  write_sweep(12);
  const CommandResult run = e2e.run("submit", kSubmit);
  CAPTURE(run.out);
  CAPTURE(run.err);
  CHECK(run.exit_code == 0);
  CHECK(run.out.find("1 ok, 0 not ok") != std::string::npos);
  REQUIRE(e2e.logs().size() == 1);
  CHECK(read_file(e2e.logs()[0]).find("\"gpus\":2,\"nodes\":1,") != std::string::npos);
  CHECK(e2e.run("collect", {}).exit_code == 0);
  REQUIRE(e2e.results().size() == 2);
  CHECK(e2e.results()[1].find(",ok,") != std::string::npos);

  write_sweep(100000);
  const pid_t submit = e2e.start("submit", kSubmit);
  // In its measured steps.
  REQUIRE(wait_until([&] {
    const auto logs = e2e.logs();
    return logs.size() == 2 && std::ranges::all_of(logs, [](const auto& log) {
             return count_of(read_file(log), "\"warmup\":false,") > 5;
           });
  }));
  ::kill(submit, SIGINT);
  CHECK(EndToEnd::exit_code(submit) == static_cast<int>(ExitCode::interrupted));
  CHECK(living(e2e).empty());
  int partial = 0;
  for (const auto& log : e2e.logs())
    partial += read_file(log).find("\"status\":\"partial\",\"ended_by\":\"interrupted\"") !=
                       std::string::npos
                   ? 1
                   : 0;
  CHECK(partial == 1);
}

TEST_CASE("a remembered peak that a run exceeds is forgotten and said to be") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "1", 12);
  std::filesystem::create_directories(e2e.folder() / "state");
  const std::filesystem::path peaks = e2e.folder() / "state/cpu-peaks.json";
  const auto can = submit::ask_capabilities(e2e.program("trainer"));
  REQUIRE(can.has_value());
  write_file_atomically(
      peaks, fmt::format(R"({{"{} | 1 threads | {}": 1e-9, "other": 2}})", can->cpu, can->blas));
  const CommandResult run = e2e.run("submit", kSubmit);
  CAPTURE(run.out);
  CHECK(run.exit_code == 0);
  CHECK(run.out.find("faster than this CPU's remembered peak") != std::string::npos);
  CHECK(run.out.find("measuring this CPU's peak") == std::string::npos);
  CHECK(read_file(peaks).find("threads") == std::string::npos);
  CHECK(read_file(peaks).find("other") != std::string::npos);
  const CommandResult again =
      e2e.run("submit", {"--sweep", "sweep.yaml", "--RUN", "--only", "all"});
  CHECK(again.out.find("measuring this CPU's peak with 1 thread\n") != std::string::npos);
  CHECK(again.out.find("faster than") == std::string::npos);
}

TEST_CASE("a variable that an axis says is not set does not come from the submitter") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "1", 12, "");
  ::setenv("OMP_PROC_BIND", "true", 1);
  std::vector<std::string> unset = kSubmit;
  unset.insert(unset.end(), {"--set", "env.OMP_PROC_BIND=null"});
  const CommandResult run = e2e.run("submit", unset);
  ::unsetenv("OMP_PROC_BIND");
  CAPTURE(run.err);
  CHECK(run.exit_code == 0);
  REQUIRE(e2e.logs().size() == 1);
  CHECK(read_file(e2e.logs()[0]).find("OMP_PROC_BIND") == std::string::npos);
}
