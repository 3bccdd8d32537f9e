// What submit doctor says of a cluster file, against a site and a node as they may be.
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
using cluster::SlurmNodes;
using cluster::SlurmSite;
using Level = Finding::Level;

namespace {

SlurmNodes gpu_nodes() {
  return {.partition = "gpu",
          .is_default = true,
          .max_time_s = 86400,
          .nodes = 4,
          .state = "idle",
          .cpus = 96,
          .memory_mib = 1024000,
          .gres = {{"gpu", "h100", 8}},
          .features = {"hgx", "ib"}};
}

SlurmSite site() {
  SlurmSite site{.version = "22.05.8", .name = "big", .has_accounting = true};
  site.max_array_size = 1001;
  site.max_jobs = 10000;
  site.nodes = {gpu_nodes(),
                {.partition = "cpu", .nodes = 16, .state = "mixed", .cpus = 64, .gres = {}}};
  site.accounts = {"bench", "other"};
  site.qos = {"normal"};
  return site;
}

Cluster file() {
  Cluster file;
  file.name = "big";
  file.kind = cluster::Kind::slurm;
  file.gpus = {
      {.name = "h100_80gb", .per_node = 8, .nodes = 4, .request = "gres", .gres = "gpu:h100"},
      {.name = "cpu", .per_node = 4, .nodes = 4}};
  file.slurm.partition = "gpu";
  file.slurm.account = "bench";
  file.slurm.cpus_per_gpu = 12;
  file.max_time_s = 14400;
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

template <class Change>
std::vector<std::string> faults_of_file(Change change) {
  Cluster changed = file();
  change(changed);
  return faults(judge_site(changed, site()));
}

template <class Change>
std::vector<std::string> faults_of_site(Change change) {
  SlurmSite changed = site();
  change(changed);
  return faults(judge_site(file(), changed));
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

TEST_CASE("a file that fits its site has nothing to mend") {
  CHECK(faults(judge_site(file(), site())).empty());
  for (const Finding& each : judge_site(file(), site())) CHECK(each.level == Level::ok);
}

TEST_CASE("partition, account and qos that are not there are named with those that are") {
  CHECK(faults_of_file([](Cluster& f) { f.slurm.partition = "gpus"; }) ==
        Lines{"MEND partition: there is no 'gpus' -> slurm.partition: one of cpu, gpu"});
  CHECK(faults_of_file([](Cluster& f) { f.slurm.partition = "gpu,none"; }) ==
        Lines{"MEND partition: there is no 'none' -> slurm.partition: one of cpu, gpu"});
  CHECK(faults_of_file([](Cluster& f) { f.slurm.account = "mine"; }) ==
        Lines{"MEND account: 'mine' is none of yours -> slurm.account: one of bench, other"});
  CHECK(faults_of_file([](Cluster& f) { f.slurm.qos = "high"; }) ==
        Lines{"MEND qos: 'high' is none of yours -> slurm.qos: one of normal"});
  CHECK(faults_of_site([](SlurmSite& s) { s.accounts.clear(); }).empty());
  // Without a name jobs go to the default, if there is one.
  CHECK(faults_of_file([](Cluster& f) { f.slurm.partition.clear(); }).empty());
  SlurmSite none = site();
  none.nodes[0].is_default = false;
  Cluster unnamed = file();
  unnamed.slurm.partition.clear();
  CHECK(faults(judge_site(unnamed, none)) ==
        Lines{"MEND partition: the file names none, and the site has no default -> "
              "slurm.partition: one of cpu, gpu"});
  CHECK(
      faults_of_site([](SlurmSite& s) { s.nodes[0].is_up = false; }) ==
      Lines{"MEND partition: gpu takes no jobs now -> another partition, or ask those who run it"});
}

TEST_CASE("what no node has is named with what they have") {
  CHECK(faults_of_file([](Cluster& f) { f.gpus[0].gres = "gpu:a100"; }) ==
        Lines{"MEND h100_80gb: no node of the partition has gres gpu:a100 -> gres: one of "
              "gpu:h100",
              "note gpus: the partition has 32 of gpu:h100, which no entry of gpus asks for"});
  CHECK(faults_of_file([](Cluster& f) { f.slurm.partition = "cpu"; }).front() ==
        "MEND h100_80gb: no node of the partition has gres gpu:h100 -> a partition with GPUs, or "
        "request: none where Slurm does not hand them out");
  CHECK(faults_of_file([](Cluster& f) { f.gpus[0].per_node = 16; }).front() ==
        "MEND h100_80gb: per_node is 16, a node has at most 8 -> per_node: 8");
  CHECK(faults_of_file([](Cluster& f) { f.gpus[0].nodes = 5; }) ==
        Lines{"MEND h100_80gb: nodes is 5, the partition has 4 -> nodes: 4"});
  CHECK(faults_of_file([](Cluster& f) { f.gpus[0].constraint = "dgx"; }) ==
        Lines{"MEND h100_80gb: no node has the feature 'dgx' -> constraint: one of hgx, ib"});
  SlurmSite plain = site();
  plain.nodes[0].features.clear();
  Cluster constrained = file();
  constrained.gpus[0].constraint = "hgx";
  CHECK(faults(judge_site(constrained, plain)) ==
        Lines{"MEND h100_80gb: no node has the feature 'hgx' -> leave constraint out: no node has "
              "features"});
  CHECK(faults_of_file([](Cluster& f) { f.gpus[0].constraint = "dgx|hgx"; }).empty());
  CHECK(faults_of_file([](Cluster& f) { f.slurm.cpus_per_gpu = 16; }) ==
        Lines{"MEND h100_80gb: 128 CPUs for the 8 GPUs of a node, which has 96 -> "
              "slurm.cpus_per_gpu: 12"});
  CHECK(faults_of_file([](Cluster& f) { f.gpus[1].per_node = 100; }) ==
        Lines{"MEND cpu: per_node is 100: ranks of a node, which has 96 CPUs -> per_node: at most "
              "96"});
  CHECK(faults_of_file([](Cluster& f) { f.gpus[1].nodes = 9; }) ==
        Lines{"MEND cpu: nodes is 9, the partition has 4 -> nodes: 4"});
  // Nobody asks for them.
  CHECK(faults_of_file([](Cluster& f) {
          f.gpus[0].request = "none";
          f.gpus[0].gres = "gpu:other";
        }).empty());
  // Without a type any GPU will do.
  CHECK(faults_of_file([](Cluster& f) { f.gpus[0].gres.clear(); }).empty());
}

TEST_CASE("limits of the site") {
  CHECK(faults_of_file([](Cluster& f) { f.max_time_s = 2 * 86400; }) ==
        Lines{"MEND time: max is 2-00:00:00, the partition ends jobs after 1-00:00:00 -> time.max: "
              "1-00:00:00"});
  CHECK(faults_of_file([](Cluster& f) { f.max_time_s.reset(); }) ==
        Lines{"note time: the partition ends jobs after 1-00:00:00; with time.max: 1-00:00:00 no "
              "run asks for more"});
  CHECK(faults_of_site([](SlurmSite& s) { s.nodes[0].max_time_s.reset(); }).empty());
  CHECK(faults_of_file([](Cluster& f) { f.max_in_flight = 20000; }) ==
        Lines{"MEND limits: max_in_flight is 20000, the site has at most 10000 jobs -> "
              "limits.max_in_flight: less than 10000"});
  CHECK(faults_of_file([](Cluster& f) {
          f.array = true;
          f.max_in_flight = 32;
        }) == Lines{"note limits: array: auto has no effect beside max_in_flight, nor with "
                    "--max-in-flight"});
  CHECK(faults_of_file([](Cluster& f) { f.array = true; }).empty());
  CHECK(faults_of_site([](SlurmSite& s) { s.limits_memory = true; }).size() == 1);
  CHECK(faults_of_site([](SlurmSite& s) { s.has_accounting = false; })
            .front()
            .starts_with("note accounting: there is none"));
  CHECK(faults_of_site([](SlurmSite& s) { s.version = "20.11.4"; }) ==
        Lines{"note slurm: Slurm 20.11.4, cluster big: older than what is tested, 22.05"});
  SlurmSite broken = site();
  SlurmNodes down = gpu_nodes();
  down.nodes = 1;
  down.state = "down*";
  broken.nodes.push_back(down);
  CHECK(nodes_out_of_service(file(), broken) == 1);
  CHECK(nodes_out_of_service(file(), site()) == 0);
  CHECK(faults(judge_site(file(), broken)) ==
        Lines{"note partition: gpu: 5 nodes, 1 of them not to be used now"});
}

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
  fake.file().kind = cluster::Kind::local;  // no site is asked
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
