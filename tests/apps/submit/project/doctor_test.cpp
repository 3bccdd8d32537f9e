// SPDX-License-Identifier: Apache-2.0
// What submit doctor says of a cluster, against a site and a node as they may be.
#include "apps/submit/project/doctor.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "tests/apps/submit/loop/fake_scheduler.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::submit;
using cluster::Cluster;
using Level = Finding::Level;

namespace {

Cluster file() {
  Cluster file;
  file.name = "big";
  file.gpus = {{.name = "h100_80gb", .per_node = 8, .nodes = 4},
               {.name = "cpu", .per_node = 4, .nodes = 4}};
  return file;
}

// "MEND partition: there is no 'x' -> ..." of all that is not ok.
std::vector<std::string> faults(const std::vector<Finding>& findings) {
  std::vector<std::string> lines;
  for (const Finding& each : findings) {
    if (each.level == Level::ok) continue;
    lines.push_back(fmt::format("{} {}: {}{}", each.level == Level::mend ? "MEND" : "note",
                                each.about, each.text, each.fix.empty() ? "" : " -> " + each.fix));
  }
  return lines;
}

using Lines = std::vector<std::string>;

hardware::Catalogue catalogue() {
  return hardware::built_in_catalogue();
}

cluster::NodeReport report() {
  return {.node = "n07",
          .devices = {"NVIDIA H100 80GB HBM3"},
          .version = "trainer 0.1.0 abc",
          .capabilities = R"({"cpu": "EPYC", "blas": "OpenBLAS", "cpus": 4,
  "devices": ["cpu", "cuda"], "precisions": ["fp32", "amp_bf16"], "mixed_precision": ["DEFAULT"],
  "sharding": ["NO_SHARD"], "activation_checkpointing": ["none", "full"], "norms": ["layernorm"],
  "positions": ["learned"], "activations": ["gelu_erf"], "untied_head": false,
  "activation_cpu_offload": false, "data": ["synthetic"], "max_ranks": 1,
  "microbatch_auto": false})",
          .trainer_fault = {},
          .queue_s = 3};
}

template <class Change>
Lines faults_of_node(Change change) {
  cluster::NodeReport changed = report();
  change(changed);
  return faults(judge_node({.name = "h100_80gb", .expect = {"NVIDIA H100 80GB HBM3"}}, changed,
                           catalogue(), "trainer 0.1.0 abc"));
}

}  // namespace

TEST_CASE("what a node says of its trainer and its devices") {
  CHECK(faults_of_node([](auto&) {}).empty());
  CHECK(faults_of_node([](auto& r) { r.trainer_fault = "trainer --version: exit code 127: no"; }) ==
        Lines{"MEND h100_80gb: on n07: trainer --version: exit code 127: no -> trainer: {path: "
              "...}, where nodes have it"});
  CHECK(faults_of_node([](auto& r) { r.version = "trainer 0.1.0 old"; }) ==
        Lines{"note h100_80gb: trainer 0.1.0 old on n07, trainer 0.1.0 abc beside submit"});
  CHECK(faults_of_node([](auto& r) { r.capabilities = "{}"; }).size() == 1);
  const std::size_t cuda = report().capabilities.find(", \"cuda\"");
  CHECK(faults_of_node([&](auto& r) { r.capabilities.erase(cuda, 8); }) ==
        Lines{"MEND h100_80gb: the trainer on n07 has no cuda device: --RUN would drop each point "
              "-> a trainer that is built for it, and on GPUs a driver"});
  CHECK(faults_of_node([&](auto& r) {
          r.capabilities.erase(cuda, 8);
          r.capabilities.insert(1, R"("cuda": {"gpus": [], "none": "there is no NVIDIA driver"},)");
        }) == Lines{"MEND h100_80gb: the trainer on n07 has no cuda device (there is no NVIDIA "
                    "driver): --RUN would drop each point -> mend that, or take the entry out of "
                    "the cluster file"});
  CHECK(faults_of_node([](auto& r) { r.devices = {"NVIDIA H200", "NVIDIA H200"}; }) ==
        Lines{"MEND h100_80gb: n07 has \"NVIDIA H200\", which is not expected: its runs would end "
              "before step one -> expect: [\"NVIDIA H200\"], or another entry for it"});
  CHECK(faults_of_node([](auto& r) { r.devices.clear(); })
            .front()
            .starts_with("note h100_80gb: n07 has no nvidia-smi"));
  // Nothing is expected by the file: the catalogue knows names.
  CHECK(faults(judge_node({.name = "h200"}, report(), catalogue(), "")) ==
        Lines{"MEND h200: n07 has \"NVIDIA H100 80GB HBM3\", which is a h100_80gb -> call the "
              "entry h100_80gb"});
  cluster::NodeReport strange = report();
  strange.devices = {"ACME 9000"};
  CHECK(faults(judge_node({.name = "h200"}, strange, catalogue(), ""))
            .front()
            .starts_with("MEND h200: \"ACME 9000\" on n07 is in no catalogue -> --gpu-catalogue"));
}

TEST_CASE("what a trainer on a node can do is remembered as long as the file means that trainer") {
  const test::TemporaryFolder folder;
  ::setenv("TESSERA_STATE_DIR", (folder / "state").c_str(), 1);
  Cluster big = file();
  big.trainer.path = "/opt/trainer";
  CHECK_FALSE(remembered_trainer(big, "h100_80gb").has_value());
  NodeTrainer trainer{.utc = "2026-11-30T05:00:00.000Z",
                      .node = "n07",
                      .version = "trainer 0.1.0 abc",
                      .capabilities_json = report().capabilities,
                      .can = {}};
  remember_trainer(big, "h100_80gb", trainer);
  remember_trainer(big, "cpu", trainer);
  const auto known = remembered_trainer(big, "h100_80gb");
  REQUIRE(known.has_value());
  CHECK(known->node == "n07");
  CHECK(known->can.devices == std::vector<std::string>{"cpu", "cuda"});
  CHECK(remembered_trainer(big, "cpu").has_value());
  CHECK_FALSE(remembered_trainer(big, "h200").has_value());
  // Another trainer is another matter.
  Cluster other = big;
  other.trainer.path = "/opt/newer/trainer";
  CHECK_FALSE(remembered_trainer(other, "cpu").has_value());
  remember_trainer(other, "cpu", trainer);
  CHECK_FALSE(remembered_trainer(other, "h100_80gb").has_value());
  // A damaged file is none.
  std::ofstream(folder / "state/trainers/big.json") << "{\"tessera_trainers\": 1, \"gp";
  CHECK_FALSE(remembered_trainer(other, "cpu").has_value());
  ::unsetenv("TESSERA_STATE_DIR");
}

TEST_CASE("an examination goes on after a fault and leaves no folder") {
  const test::TemporaryFolder folder;
  ::setenv("TESSERA_STATE_DIR", (folder / "state").c_str(), 1);
  test::FakeScheduler fake;
  fake.file().gpus = {{.name = "h100_80gb"}, {.name = "cpu"}};
  fake.on_probe = [&](const cluster::NodeQuestion& question) {
    CHECK(std::filesystem::is_directory(question.folder));
    if (question.gpu == "h100_80gb") throw Error(ExitCode::refused, "sbatch", "no such account");
    return report();
  };
  std::vector<std::string> told;
  DoctorOptions options;
  options.workspace = folder / "runs";
  options.catalogue = catalogue();
  options.interrupted = [] { return false; };
  options.found = [&](const Finding& finding) { told.push_back(finding.about); };
  options.waiting = [](const std::string&) {};
  const auto findings = examine(fake, options);
  CHECK(faults(findings).size() == 2);
  CHECK(faults(findings).front().find(" was not there and was made; it can be written here") !=
        std::string::npos);
  CHECK(faults(findings).back() == "MEND h100_80gb: sbatch: no such account");
  CHECK(told == std::vector<std::string>{"workspace", "h100_80gb", "cpu", "cpu"});
  CHECK(std::filesystem::is_empty(folder / "runs"));
  CHECK(remembered_trainer(fake.file(), "cpu").has_value());

  // A name that no catalogue has is told, asked or not.
  fake.file().gpus = {{.name = "h2000"}, {.name = "cpu"}};
  options.asks_nodes = false;
  CHECK(faults(examine(fake, options)) ==
        Lines{"note h2000: " + *hardware::unknown_gpu(catalogue(), "h2000")});
  fake.file().gpus = {{.name = "h100_80gb"}, {.name = "cpu"}};
  options.asks_nodes = true;

  // Who gives up on one asks the next; a cluster that is silent is no fault of the file.
  fake.on_probe = [&](const cluster::NodeQuestion& question) -> cluster::NodeReport {
    if (question.gpu == "cpu") throw Error(ExitCode::unreachable, "squeue", "no answer");
    while (question.goes_on({.phase = cluster::JobState::Phase::pending, .reason = "Priority"})) {
    }
    throw Error(ExitCode::interrupted, question.name, "given up", "the job still waits: Priority");
  };
  options.patience_s = 0.01;
  const auto silent = examine(fake, options);
  std::vector<std::string> texts;
  for (const Finding& each : silent) {
    if (each.level == Level::silent) texts.push_back(each.text);
  }
  CHECK(texts == std::vector<std::string>{"no answer from a node within 0 s: given up; the job "
                                          "still waits: Priority",
                                          "squeue: no answer"});
  // Ctrl-C ends it.
  options.interrupted = [] { return true; };
  CHECK_THROWS_AS(examine(fake, options), Error);
  // A workspace that cannot be made.
  std::ofstream(folder / "file") << "";
  options.workspace = folder / "file/runs";
  options.interrupted = [] { return false; };
  CHECK(faults(examine(fake, options)).front().starts_with("MEND workspace: "));
  ::unsetenv("TESSERA_STATE_DIR");
}

TEST_CASE(
    "what the scheduler says of its site comes first; nodes out of service are not asked for") {
  const test::TemporaryFolder folder;
  test::FakeScheduler fake;
  fake.file().gpus = {{.name = "cpu", .per_node = 2, .nodes = 4}};
  DoctorOptions options;
  options.workspace = folder / "runs";
  options.catalogue = catalogue();
  options.asks_nodes = false;
  options.interrupted = [] { return false; };
  options.found = [](const Finding&) {};
  options.waiting = [](const std::string&) {};
  fake.on_examine = [] {
    return cluster::SiteReport{
        .findings = {{.level = Level::mend, .about = "queue", .text = "is closed", .fix = "wait"}},
        .nodes_out_of_service = 1};
  };
  CHECK(faults(examine(fake, options)).front() == "MEND queue: is closed -> wait");
  REQUIRE_FALSE(fake.checked.empty());
  CHECK(fake.checked.front().nodes == 3);
  CHECK(fake.checked.front().ranks == 6);

  // A silent site ends it: of what jobs would find there nothing can be said.
  fake.on_examine = []() -> cluster::SiteReport {
    throw Error(ExitCode::unreachable, "api", "does not answer");
  };
  const auto findings = examine(fake, options);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].level == Level::silent);
  CHECK(findings[0].about == to_text(fake.file().kind));
  CHECK(findings[0].text == "api: does not answer");
}
