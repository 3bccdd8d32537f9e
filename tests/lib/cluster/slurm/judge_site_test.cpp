// SPDX-License-Identifier: Apache-2.0
// What submit doctor says of a cluster file against a Slurm site as it may be.
#include "lib/cluster/slurm/judge_site.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace tessera;
using namespace tessera::cluster;
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
  file.kind = Kind::slurm;
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
