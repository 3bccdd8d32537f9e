// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/cluster_file.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "lib/base/process.h"
#include "lib/cluster/inventory.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::cluster;

namespace {

Cluster read(const std::string& yaml) {
  return parse_cluster(parse_yaml("tessera_cluster: 1\n" + yaml, "dir/c.yaml"), "dir/c.yaml");
}

std::string fault(const std::string& yaml) {
  try {
    read(yaml);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::input);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("built-in clusters") {
  const Cluster local = find_cluster("local", "");
  CHECK(local.name == "local");
  CHECK(local.kind == Kind::local);
  CHECK(local.max_parallel == 1);
  CHECK(local.workspace.empty());
  CHECK(view_of(local).cpus == usable_cpus());
  const Cluster published = find_cluster("mpt-published.yaml", "");
  CHECK(published.kind == Kind::slurm);
  REQUIRE(published.gpus.size() == 3);
  CHECK(published.gpus[0].name == "h100_80gb");
  CHECK(published.gpus[0].per_node == 8);
  CHECK(published.gpus[0].nodes == 64);
  CHECK(published.gpus[0].expect == std::vector<std::string>{"NVIDIA H100 80GB HBM3"});
  try {
    find_cluster("lokal", "-c");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) == "-c: unknown cluster 'lokal'; did you mean local?");
  }
}

TEST_CASE("the user's own clusters come before the built-in ones") {
  const test::TemporaryFolder folder;
  const auto variable = [](const char* name) -> std::optional<std::string> {
    const char* text = std::getenv(name);
    return text != nullptr ? std::optional<std::string>(text) : std::nullopt;
  };
  const auto set = [](const char* name, const std::optional<std::string>& text) {
    text ? ::setenv(name, text->c_str(), 1) : ::unsetenv(name);
  };
  const auto old_config = variable("XDG_CONFIG_HOME");
  const auto old_home = variable("HOME");
  std::filesystem::create_directories(folder / "tessera/clusters");
  const auto write = [&](const std::string& name, const std::string& gpu) {
    std::ofstream(folder / ("tessera/clusters/" + name))
        << "tessera_cluster: 1\nkind: slurm\ngpus: {" << gpu << ": {per_node: 4}}\n";
  };
  write("hgx.yaml", "h200");
  write("mpt-published.yaml", "mi300x");
  write("notes.txt", "none");
  ::setenv("XDG_CONFIG_HOME", folder.path().c_str(), 1);
  CHECK(find_cluster("hgx", "").gpus[0].name == "h200");
  CHECK(find_cluster("hgx.yaml", "").source == (folder / "tessera/clusters/hgx.yaml"));
  CHECK(find_cluster("mpt-published", "").gpus[0].name == "mi300x");
  CHECK(find_cluster("local", "").kind == Kind::local);
  try {
    find_cluster("hgy", "-c");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) == "-c: unknown cluster 'hgy'; did you mean hgx?");
  }
  // Without it: the home folder's.
  ::unsetenv("XDG_CONFIG_HOME");
  std::filesystem::create_directories(folder / ".config");
  std::filesystem::rename(folder / "tessera", folder / ".config/tessera");
  ::setenv("HOME", folder.path().c_str(), 1);
  CHECK(find_cluster("hgx", "").gpus[0].name == "h200");
  set("HOME", old_home);
  set("XDG_CONFIG_HOME", old_config);
}

TEST_CASE("the example of a Slurm cluster is a file that is read") {
  const Cluster example = find_cluster("slurm-example", "");
  CHECK(example.kind == Kind::slurm);
  CHECK(example.gpus.size() == 2);
  CHECK(example.workspace.starts_with('/'));
  CHECK(example.pretest.empty());
  CHECK(example.fetch.empty());
}

TEST_CASE("a Slurm cluster, every key") {
  const Cluster cluster = read(R"(kind: slurm
workspace: /shared/bench/tessera
fetch: null
trainer: {path: /shared/bench/bin/tessera-trainer, image: null, mounts: [/shared], modules: [cuda/13.0]}
gpus:
  h100_80gb: {per_node: 8, nodes: 64, request: gres, gres: "gpu:h100", constraint: hgx, expect: ["NVIDIA H100 80GB HBM3"]}
slurm: {partition: gpu, account: acc, qos: bench, reservation: null, nodelist: null, exclude: [n17], exclusive: true, mem: "0",
        cpus_per_gpu: 12, bind: numa, extra: ["--switches=1"], prologue: null}
env: {NCCL_IB_HCA: mlx5}
identity: [env]
time: {startup_s: 300, max: "04:00:00"}
limits: {max_in_flight: 32, rate_per_s: 5, array: never}
pretest: [gemm, allreduce]
name: "{project}--{slug}-{id}"
)");
  CHECK(cluster.name == "c");
  CHECK(cluster.workspace == "/shared/bench/tessera");
  CHECK(cluster.gpus[0].gres == "gpu:h100");
  CHECK(cluster.slurm.exclude == std::vector<std::string>{"n17"});
  CHECK(cluster.slurm.cpus_per_gpu == 12);
  CHECK(cluster.identity == std::map<std::string, std::string>{{"env.NCCL_IB_HCA", "mlx5"}});
  CHECK(cluster.max_time_s == 14400);
  CHECK(cluster.rate_per_s == 5);
  CHECK(view_of(cluster).identity.size() == 1);
  CHECK(view_of(cluster).cpus == 0);
}

TEST_CASE("a REST cluster needs its server, a Kubernetes cluster has a volume") {
  const std::string gpus = "gpus: {h200: {per_node: 8}}\n";
  const Cluster rest = read("kind: slurm-rest\n" + gpus +
                            "rest: {url: \"http://head:6820\", user: me, version: auto, token: "
                            "{command: \"scontrol token lifespan=3600\"}}\n");
  CHECK(rest.rest.token_from == "command");
  CHECK(fault("kind: slurm-rest\n" + gpus) == "dir/c.yaml:1:1: a cluster lacks 'rest'");
  CHECK(fault("kind: slurm-rest\n" + gpus + "rest: {url: x, token: {env: A, file: b}}\n")
            .find("two sources") != std::string::npos);
  const Cluster kubernetes = read(R"(kind: kubernetes
kubeconfig: null
context: prod
namespace: bench
layout: auto
trainer: {image: "reg.example/tessera@sha256:...", path: /usr/bin/tessera-trainer, pull_secrets: [reg]}
workspace: {pvc: bench-runs, mount: /runs}
gpus:
  h100_80gb: {per_node: 8, resource: nvidia.com/gpu, node_selector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}, expect: ["NVIDIA H100 80GB HBM3"]}
pod: {cpu: "96", memory: 1600Gi, shm: 256Gi, resources: {rdma/ib: "8"}, capabilities: [IPC_LOCK], host_network: false, annotations: {},
      tolerations: [{key: nvidia.com/gpu, operator: Exists}], service_account: null, priority_class: null, scheduler: null}
kueue: {queue: bench, topology: null}
ttl_s: 604800
patch: null
)");
  CHECK(kubernetes.kubernetes.pvc == "bench-runs");
  CHECK(kubernetes.kubernetes.namespace_ == "bench");
  CHECK(kubernetes.gpus[0].node_selector.size() == 1);
}

TEST_CASE("faults of a cluster file") {
  const std::string gpus = "gpus: {cpu: {per_node: 1}}\n";
  CHECK(fault(gpus) == "dir/c.yaml:1:1: a cluster lacks 'kind'");
  CHECK(fault("kind: slurn\n" + gpus) ==
        "dir/c.yaml:2:7: unknown value 'slurn'; did you mean slurm?");
  CHECK(fault("kind: local\n") == "dir/c.yaml:1:1: a cluster lacks 'gpus'");
  CHECK(fault("kind: local\ngpus: {}\n").find("gpus is empty") != std::string::npos);
  CHECK(fault("kind: local\nslurm: {partition: gpu}\n" + gpus)
            .starts_with("dir/c.yaml:3:1: unknown key 'slurm' in a cluster"));
  CHECK(fault("kind: local\ngpus: {cpu: {per_nod: 1}}\n") ==
        "dir/c.yaml:3:14: unknown key 'per_nod' in 'cpu' of gpus; did you mean per_node?");
  CHECK(fault("kind: slurm\nworkspace: runs\n" + gpus).find("workspace 'runs' is not absolute") !=
        std::string::npos);
  CHECK(fault("kind: local\nidentity: [evn]\nenv: {A: 1}\n" + gpus) ==
        "dir/c.yaml:3:12: identity names 'evn', which this file does not set; did you mean env?");
  CHECK(fault("kind: local\nname: \"{id}\"\n" + gpus).find("must begin with {project}--") !=
        std::string::npos);
  CHECK(fault("kind: local\ntime: {max: 4}\n" + gpus).find("'4' is no duration") !=
        std::string::npos);
  CHECK(fault("kind: local\ngpus: {h200: {nodes: 2}}\n") ==
        "dir/c.yaml:3:22: 2 nodes: a local cluster is one, this machine; leave it out");
  CHECK(fault("kind: local\nmax_parallel: 0\n" + gpus).find("out of range") != std::string::npos);
}
