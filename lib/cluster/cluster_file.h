// SPDX-License-Identifier: Apache-2.0
// Cluster files: `tessera_cluster: 1` YAML (docs/formats.md, "Cluster"), read and checked for all
// kinds. `local` and `slurm` can run; the others are planned against.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/tree.h"

namespace tessera::cluster {

enum class Kind : std::uint8_t { local, slurm, slurm_rest, kubernetes };

// One kind of GPU, how to ask for it and what the driver may call what comes.
struct GpuEntry {
  std::string name;           // in the GPU catalogue, or "cpu"
  std::int64_t per_node = 1;  // devices
  std::int64_t nodes = 0;     // 0: not said
  std::string request;        // slurm: gres | gpus-per-node | none
  std::string gres;
  std::string constraint;
  std::string resource;  // kubernetes: nvidia.com/gpu
  std::map<std::string, std::string> node_selector;
  std::vector<std::string> expect;
};

struct Trainer {
  std::string path;   // empty: beside submit
  std::string image;  // empty: none
  std::vector<std::string> mounts;
  std::vector<std::string> modules;
  std::vector<std::string> pull_secrets;
};

struct Slurm {
  std::string partition;
  std::string account;
  std::string qos;
  std::string reservation;
  std::string nodelist;
  std::vector<std::string> exclude;
  bool exclusive = false;
  std::string mem;
  std::int64_t cpus_per_gpu = 0;  // 0: not said
  std::string bind;
  std::vector<std::string> extra;
  std::string prologue;
};

struct Rest {
  std::string url;
  std::string user;
  std::string version = "auto";
  std::string token_from;  // command | env | file
  std::string token;       // what that names
};

struct Kubernetes {
  std::string kubeconfig;
  std::string context;
  std::string namespace_ = "default";
  std::string layout = "auto";
  std::string pvc;  // of the workspace; empty: logs are harvested from the pods
  std::string mount;
  std::string queue;  // Kueue
  std::string topology;
  std::int64_t ttl_s = 604800;
  Value pod;    // read and checked when manifests are rendered
  Value patch;  // likewise
};

struct Cluster {
  std::string name;    // of the file, without .yaml
  std::string source;  // its path
  Kind kind = Kind::local;
  std::string workspace;  // empty: decided elsewhere
  std::string fetch;
  std::int64_t max_parallel = 1;  // local
  std::vector<GpuEntry> gpus;
  Trainer trainer;
  Slurm slurm;
  Rest rest;
  Kubernetes kubernetes;
  std::map<std::string, std::string> env;
  std::map<std::string, std::string> identity;  // what of this file enters every point, by path
  std::int64_t startup_s = 300;
  std::optional<std::int64_t> max_time_s;
  std::int64_t max_in_flight = 0;  // 0: no limit
  double rate_per_s = 0;           // submissions; 0: no limit
  bool array = false;              // several jobs of one shape as an array
  double poll_s = 30;              // between two questions to the cluster
  double lookup_s = 60;            // a job whose reply was lost is looked for this long
  std::vector<std::string> pretest;
  std::string name_pattern;  // empty: as Tessera names runs
};

// Error(input) with file, line and column.
Cluster parse_cluster(const Value& value, const std::string& source);
Cluster read_cluster(const std::string& path);

// A name in the user's clusters ($XDG_CONFIG_HOME, else ~/.config, then tessera/clusters) or in
// yamls/clusters, in this order, else a file. Unknown: Error(input) at `where` with the nearest
// name.
Cluster find_cluster(const std::string& name, const std::string& where);

}  // namespace tessera::cluster

namespace tessera {
template <>
struct Names<cluster::Kind> {
  static constexpr std::pair<cluster::Kind, std::string_view> table[] = {
      {cluster::Kind::local, "local"},
      {cluster::Kind::slurm, "slurm"},
      {cluster::Kind::slurm_rest, "slurm-rest"},
      {cluster::Kind::kubernetes, "kubernetes"}};
};
}  // namespace tessera
