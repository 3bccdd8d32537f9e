// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/cluster_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "lib/base/file.h"
#include "lib/cluster/cluster_folders.h"
#include "lib/sweep/duration.h"

namespace tessera::cluster {

namespace fs = std::filesystem;

namespace {

// Reads optional members into targets that hold their defaults.
class Section {
 public:
  Section(const Value& value, std::string_view what) : fields_(value, what) {}
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;

  Section& text(std::string_view key, std::string& target) {
    if (const Value* value = fields_.optional(key)) target = as_text(*value);
    return *this;
  }
  Section& texts(std::string_view key, std::vector<std::string>& target) {
    const Value* value = fields_.optional(key);
    if (value == nullptr) return *this;
    // Nothing to add is a fair answer here.
    target.clear();
    if (value->kind != Value::Kind::list || !value->items.empty()) target = as_texts(*value);
    return *this;
  }
  Section& integer(std::string_view key, std::int64_t& target, std::int64_t low,
                   std::int64_t high) {
    if (const Value* value = fields_.optional(key)) target = as_integer(*value, low, high);
    return *this;
  }
  Section& boolean(std::string_view key, bool& target) {
    if (const Value* value = fields_.optional(key)) target = as_bool(*value);
    return *this;
  }
  Section& map(std::string_view key, std::map<std::string, std::string>& target) {
    const Value* value = fields_.optional(key);
    if (value == nullptr) return *this;
    const Fields checked(*value, key);
    for (const auto& [name, member] : value->members) target[name] = as_text(member);
    return *this;
  }
  Section& one_of(std::string_view key, std::string& target,
                  const std::vector<std::string>& allowed) {
    const Value* value = fields_.optional(key);
    if (value == nullptr) return *this;
    target = as_text(*value);
    if (std::ranges::find(allowed, target) == allowed.end()) {
      bad_value(*value, fmt::format("unknown value '{}'", target), suggestion(target, allowed));
    }
    return *this;
  }
  Fields& fields() { return fields_; }
  void finish() { fields_.finish(); }

 private:
  Fields fields_;
};

// The largest count, and the most seconds (a leap year), that a member may hold.
constexpr std::int64_t kMany = 1 << 20;
constexpr std::int64_t kYear = 366 * 86400;

// Reads one member of `gpus`: h100: {per_node: 8, nodes: 4, request: gres, gres: "gpu:h100"}. Only
// members of the cluster's kind are allowed.
GpuEntry parse_gpu(const std::string& name, const Value& value, Kind kind) {
  GpuEntry gpu;
  gpu.name = name;
  Section section(value, fmt::format("'{}' of gpus", name));
  section.integer("per_node", gpu.per_node, 1, kMany).integer("nodes", gpu.nodes, 1, kMany);
  if (kind == Kind::local && gpu.nodes > 1) {
    bad_value(*value.find("nodes"),
              fmt::format("{} nodes: a local cluster is one, this machine", gpu.nodes),
              "leave it out");
  }
  section.texts("expect", gpu.expect);
  if (kind == Kind::slurm || kind == Kind::slurm_rest) {
    section.one_of("request", gpu.request, {"gres", "gpus-per-node", "none"})
        .text("gres", gpu.gres)
        .text("constraint", gpu.constraint);
  }
  if (kind == Kind::kubernetes)
    section.text("resource", gpu.resource).map("node_selector", gpu.node_selector);
  section.finish();
  return gpu;
}

// Reads `trainer`: {path: /shared/tessera/trainer, modules: [cuda/13.0]}.
void parse_trainer(const Value& value, Kind kind, Trainer& trainer) {
  Section section(value, "trainer");
  section.text("path", trainer.path);
  if (kind != Kind::local) section.text("image", trainer.image);
  if (kind == Kind::slurm || kind == Kind::slurm_rest)
    section.texts("mounts", trainer.mounts).texts("modules", trainer.modules);
  if (kind == Kind::kubernetes) section.texts("pull_secrets", trainer.pull_secrets);
  section.finish();
}

// Reads `slurm`: {partition: gpu, exclusive: true, cpus_per_gpu: 12}. An absent member leaves
// Slurm's own default.
void parse_slurm(const Value& value, Slurm& slurm) {
  Section section(value, "slurm");
  section.text("partition", slurm.partition)
      .text("account", slurm.account)
      .text("qos", slurm.qos)
      .text("reservation", slurm.reservation)
      .text("nodelist", slurm.nodelist)
      .texts("exclude", slurm.exclude)
      .boolean("exclusive", slurm.exclusive)
      .text("mem", slurm.mem)
      .integer("cpus_per_gpu", slurm.cpus_per_gpu, 1, kMany)
      .one_of("bind", slurm.bind, {"numa", "none"})
      .texts("extra", slurm.extra)
      .text("prologue", slurm.prologue);
  section.finish();
}

// Reads `rest`: {url: "http://head:6820", user: kim, token: {env: SLURM_JWT}}. Error(input) if the
// token has two sources.
void parse_rest(const Value& value, Rest& rest) {
  Section section(value, "rest");
  rest.url = as_text(section.fields().required("url"));
  section.text("user", rest.user).text("version", rest.version);
  if (const Value* token = section.fields().optional("token")) {
    Section source(*token, "token");
    for (const char* from : {"command", "env", "file"}) {
      std::string named;
      source.text(from, named);
      if (named.empty()) continue;
      if (!rest.token.empty())
        bad_value(*token, "the token has two sources", "command, env or file");
      rest.token_from = from;
      rest.token = named;
    }
    source.finish();
  }
  section.finish();
}

// Reads the members of a Kubernetes cluster. The keys of `pod` are checked here. Its values and
// `patch` are kept as they are written.
void parse_kubernetes(Section& section, Kubernetes& kubernetes) {
  section.text("kubeconfig", kubernetes.kubeconfig)
      .text("context", kubernetes.context)
      .text("namespace", kubernetes.namespace_)
      .one_of("layout", kubernetes.layout, {"auto", "indexed-job", "jobset", "pods"})
      .integer("ttl_s", kubernetes.ttl_s, 0, kYear);
  if (const Value* queue = section.fields().optional("kueue")) {
    Section kueue(*queue, "kueue");
    kueue.text("queue", kubernetes.queue).text("topology", kubernetes.topology).finish();
  }
  if (const Value* pod = section.fields().optional("pod")) {
    Fields keys(*pod, "pod");
    for (const char* key :
         {"cpu", "memory", "shm", "resources", "capabilities", "host_network", "annotations",
          "tolerations", "service_account", "priority_class", "scheduler"}) {
      keys.optional(key);
    }
    keys.finish();
    kubernetes.pod = *pod;
  }
  if (const Value* patch = section.fields().optional("patch")) {
    const Fields checked(*patch, "patch");
    kubernetes.patch = *patch;
  }
}

// On Kubernetes the workspace is a volume, elsewhere an absolute path.
void parse_workspace(Section& section, Cluster& cluster) {
  const Value* value = section.fields().optional("workspace");
  if (value == nullptr) return;
  if (cluster.kind == Kind::kubernetes) {
    Section volume(*value, "workspace");
    cluster.kubernetes.pvc = as_text(volume.fields().required("pvc"));
    cluster.kubernetes.mount = as_text(volume.fields().required("mount"));
    volume.finish();
    return;
  }
  cluster.workspace = as_text(*value);
  if (cluster.kind != Kind::local && !cluster.workspace.starts_with('/')) {
    bad_value(*value, fmt::format("workspace '{}' is not absolute", cluster.workspace),
              "it must be one path on login and compute nodes");
  }
}

// "env" with {A: 1} becomes "env.A" = "1".
void flatten(const std::string& path, const Value& value,
             std::map<std::string, std::string>& target) {
  if (value.kind == Value::Kind::map) {
    for (const auto& [key, member] : value.members)
      flatten(fmt::format("{}.{}", path, key), member, target);
  } else if (value.kind == Value::Kind::list) {
    for (std::size_t i = 0; i < value.items.size(); ++i)
      flatten(fmt::format("{}.{}", path, i), value.items[i], target);
  } else if (!value.is_null()) {
    target[path] = value.text;
  }
}

// Copies the members that `identity: [env]` names into the identity of every point. Error(input)
// for a name that the file does not set.
void parse_identity(const Value& names, const Value& file, Cluster& cluster) {
  if (names.kind == Value::Kind::list && names.items.empty()) return;
  for (const Value* name : as_list(names)) {
    const Value* named = file.find(as_text(*name));
    if (named == nullptr) {
      std::vector<std::string> known;
      for (const auto& [key, member] : file.members) known.push_back(key);
      bad_value(*name, fmt::format("identity names '{}', which this file does not set", name->text),
                suggestion(name->text, known));
    }
    flatten(name->text, *named, cluster.identity);
  }
}

// Returns the seconds of "2h" or "04:00:00". Error(input) if the text is no duration.
std::int64_t duration(const Value& value) {
  const auto seconds = sweep::parse_duration(as_text(value));
  if (!seconds)
    bad_value(value, fmt::format("'{}' is no duration", value.text), sweep::kDurationFix);
  return *seconds;
}

// Reads the members that all kinds share. `file` is the whole file, which `identity` looks into.
void parse_common(Section& section, const Value& file, Cluster& cluster) {
  section.map("env", cluster.env);
  if (const Value* time = section.fields().optional("time")) {
    Section times(*time, "time");
    times.integer("startup_s", cluster.startup_s, 0, kYear);
    if (const Value* most = times.fields().optional("max")) cluster.max_time_s = duration(*most);
    times.finish();
  }
  if (const Value* limits = section.fields().optional("limits")) {
    Section members(*limits, "limits");
    std::string array;
    members.integer("max_in_flight", cluster.max_in_flight, 1, kMany)
        .one_of("array", array, {"never", "auto"});
    cluster.array = array == "auto";
    for (const auto& [key, target] : {std::pair("rate_per_s", &cluster.rate_per_s),
                                      {"poll_s", &cluster.poll_s},
                                      {"lookup_s", &cluster.lookup_s}}) {
      const Value* number = members.fields().optional(key);
      if (number == nullptr) continue;
      *target = as_number(*number);
      if (*target <= 0) bad_value(*number, fmt::format("{} is not positive", key));
    }
    members.finish();
  }
  section.texts("pretest", cluster.pretest);
  if (const Value* pattern = section.fields().optional("name")) {
    cluster.name_pattern = as_text(*pattern);
    if (!cluster.name_pattern.starts_with("{project}--") ||
        cluster.name_pattern.find("{id}") == std::string::npos) {
      bad_value(*pattern, "the name must begin with {project}-- and hold {id}");
    }
  }
  if (const Value* identity = section.fields().optional("identity"))
    parse_identity(*identity, file, cluster);
}

}  // namespace

Cluster parse_cluster(const Value& value, const std::string& source) {
  Section section(value, "a cluster");
  Fields& fields = section.fields();
  const Value& schema = fields.required("tessera_cluster");
  require_schema(schema, 1);
  Cluster cluster;
  cluster.name = fs::path(source).stem().string();
  cluster.source = source;
  cluster.kind = as_name<Kind>(fields.required("kind"));
  parse_workspace(section, cluster);
  const Value& gpus = fields.required("gpus");
  const Fields checked(gpus, "gpus");
  for (const auto& [name, member] : gpus.members)
    cluster.gpus.push_back(parse_gpu(name, member, cluster.kind));
  if (cluster.gpus.empty()) bad_value(gpus, "gpus is empty", "name at least one, or cpu");
  if (const Value* trainer = fields.optional("trainer"))
    parse_trainer(*trainer, cluster.kind, cluster.trainer);
  // The members of one kind. finish() refuses those of the other kinds.
  if (cluster.kind == Kind::local) section.integer("max_parallel", cluster.max_parallel, 1, 1024);
  if (cluster.kind == Kind::slurm || cluster.kind == Kind::slurm_rest) {
    section.text("fetch", cluster.fetch);
    if (const Value* slurm = fields.optional("slurm")) parse_slurm(*slurm, cluster.slurm);
  }
  if (cluster.kind == Kind::slurm_rest) parse_rest(fields.required("rest"), cluster.rest);
  if (cluster.kind == Kind::kubernetes) parse_kubernetes(section, cluster.kubernetes);
  parse_common(section, value, cluster);
  section.finish();
  return cluster;
}

Cluster read_cluster(const std::string& path) {
  return parse_cluster(read_yaml(path), path);
}

Cluster find_cluster(const std::string& name, const std::string& where) {
  std::error_code ignored;
  const std::vector<fs::path> folders = cluster_folders();
  const bool bare = name.find('/') == std::string::npos;
  const std::string stem = name.ends_with(".yaml") ? name.substr(0, name.size() - 5) : name;
  // A bare name means a known cluster, even if the current folder has a file of that name.
  for (const fs::path& folder : folders) {
    if (bare && fs::is_regular_file(folder / (stem + ".yaml"), ignored))
      return read_cluster((folder / (stem + ".yaml")).string());
  }
  if (is_file(name)) return read_cluster(name);
  if (!bare) throw_no_file(name, "cluster", where);
  // The error suggests the nearest of all known names.
  std::set<std::string> known;
  for (const fs::path& folder : folders) {
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      if (entry.path().extension() == ".yaml") known.insert(entry.path().stem().string());
    }
  }
  throw Error(ExitCode::input, where, fmt::format("unknown cluster '{}'", name),
              suggestion(stem, std::vector<std::string>(known.begin(), known.end())));
}

}  // namespace tessera::cluster
