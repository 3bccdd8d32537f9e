// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/slurm/judge_site.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "lib/base/text.h"
#include "lib/cluster/slurm/job.h"

namespace tessera::cluster {

namespace {

using Level = Finding::Level;

// Returns "debug, gpu"; "none" if there are no names.
std::string one_of(const std::set<std::string>& names) {
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

// Returns whether jobs cannot use the nodes: they are down, drained, failed or in maintenance.
bool is_down(const SlurmNodes& nodes) {
  return nodes.state.starts_with("down") || nodes.state.starts_with("drain") ||
         nodes.state.starts_with("fail") || nodes.state.starts_with("maint");
}

// Compares one cluster file with its site and collects the findings.
class SiteJudge {
 public:
  SiteJudge(const Cluster& cluster, const SlurmSite& site) : cluster_(cluster), site_(site) {}

  std::vector<Finding> findings() {
    version();
    account();
    // Without a partition there are no nodes to compare the entries with.
    if (!partition()) return std::move(findings_);
    for (const GpuEntry& gpu : cluster_.gpus) {
      if (gpu.name == "cpu") {
        cpus(gpu);
      } else {
        gpus(gpu);
      }
    }
    left_out();
    limits();
    return std::move(findings_);
  }

 private:
  void add(Level level, std::string about, std::string text, std::string fix = {}) {
    findings_.push_back({.level = level,
                         .about = std::move(about),
                         .text = std::move(text),
                         .fix = std::move(fix)});
  }

  // Notes a Slurm that is older than the tested versions, and a site without accounting.
  void version() {
    constexpr std::string_view kOldestTested = "22.05";
    const std::string text = fmt::format("Slurm {}{}", site_.version,
                                         site_.name.empty() ? "" : ", cluster " + site_.name);
    if (site_.version.substr(0, kOldestTested.size()) < kOldestTested) {
      add(Level::note, "slurm",
          fmt::format("{}: older than what is tested, {}", text, kOldestTested));
    } else {
      add(Level::ok, "slurm", text);
    }
    if (!site_.has_accounting) {
      add(Level::note, "accounting",
          "there is none: how a job ended is known only as long as the queue has it (MinJobAge), "
          "so "
          "look with submit status while it runs");
    }
  }

  // Checks account and QOS against those of this user. An empty list means that Slurm does not say.
  void account() {
    const auto known = [&](const char* key, const std::string& value,
                           const std::vector<std::string>& names) {
      if (value.empty() || names.empty() || std::ranges::find(names, value) != names.end()) return;
      add(Level::mend, key, fmt::format("'{}' is none of yours", value),
          fmt::format("slurm.{}: one of {}", key, fmt::join(names, ", ")));
    };
    known("account", cluster_.slurm.account, site_.accounts);
    known("qos", cluster_.slurm.qos, site_.qos);
  }

  // Fills nodes_; false: there is no such partition, and nothing more can be said.
  bool partition() {
    std::set<std::string> names;
    for (const SlurmNodes& nodes : site_.nodes) names.insert(nodes.partition);
    const std::string& named = cluster_.slurm.partition;
    // Slurm takes several, the first that is free.
    std::vector<std::string> wanted;
    for (std::size_t begin = 0; begin <= named.size() && !named.empty();) {
      const std::size_t end = std::min(named.find(',', begin), named.size());
      wanted.push_back(named.substr(begin, end - begin));
      begin = end + 1;
    }
    for (const std::string& name : wanted) {
      if (names.contains(name)) continue;
      add(Level::mend, "partition", fmt::format("there is no '{}'", name),
          fmt::format("slurm.partition: one of {}", one_of(names)));
    }
    // Jobs may go to all nodes of the named partitions, otherwise to those of the default one.
    std::set<std::string> chosen;
    for (const SlurmNodes& nodes : site_.nodes) {
      const bool is_chosen = wanted.empty()
                                 ? nodes.is_default
                                 : std::ranges::find(wanted, nodes.partition) != wanted.end();
      if (!is_chosen) continue;
      nodes_.push_back(&nodes);
      chosen.insert(nodes.partition);
    }
    if (nodes_.empty()) {
      if (wanted.empty()) {
        add(Level::mend, "partition", "the file names none, and the site has no default",
            fmt::format("slurm.partition: one of {}", one_of(names)));
      }
      return false;
    }
    std::int64_t all = 0;
    std::int64_t down = 0;
    for (const SlurmNodes* nodes : nodes_) {
      all += nodes->nodes;
      if (is_down(*nodes)) down += nodes->nodes;
      // A partition that is not up is reported once, whatever kinds of nodes it has.
      if (!nodes->is_up && chosen.erase(nodes->partition) > 0)
        add(Level::mend, "partition", fmt::format("{} takes no jobs now", nodes->partition),
            "another partition, or ask those who run it");
    }
    const std::string text = fmt::format(
        "{}: {}{}", wanted.empty() ? nodes_.front()->partition : named, counted(all, "node"),
        down > 0 ? fmt::format(", {} of them not to be used now", down) : "");
    add(down > 0 ? Level::note : Level::ok, "partition", text);
    return true;
  }

  // Returns whether each of the nodes has at least the wanted count. An empty type fits any type.
  static bool has_gres(const SlurmNodes& nodes, const SlurmGres& wanted) {
    return std::ranges::any_of(nodes.gres, [&](const SlurmGres& gres) {
      return gres.name == wanted.name && (wanted.type.empty() || gres.type == wanted.type) &&
             gres.count >= wanted.count;
    });
  }

  // Checks an entry of GPUs: whether nodes have that gres, enough of it, the feature and the CPUs.
  void gpus(const GpuEntry& gpu) {
    // "gpu:h100" is a name and a type. A name alone takes GPUs of any type.
    SlurmGres wanted{.name = "gpu", .count = gpu.per_node};
    if (const std::string what = gpu.gres.empty() ? "gpu" : gpu.gres; gpu.request != "none") {
      const std::size_t colon = what.find(':');
      wanted.name = what.substr(0, colon);
      if (colon != std::string::npos) wanted.type = what.substr(colon + 1);
    }
    // Count the nodes that a job of this entry could start on.
    std::int64_t fitting = 0;
    std::int64_t most = 0;
    std::int64_t fewest_cpus = 0;
    std::set<std::string> kinds;
    std::set<std::string> features;
    for (const SlurmNodes* nodes : nodes_) {
      for (const SlurmGres& gres : nodes->gres) {
        kinds.insert(gres.type.empty() ? gres.name : gres.name + ":" + gres.type);
        if (gres.name == wanted.name && (wanted.type.empty() || gres.type == wanted.type))
          most = std::max(most, gres.count);
      }
      features.insert(nodes->features.begin(), nodes->features.end());
      if (gpu.request != "none" && !has_gres(*nodes, wanted)) continue;
      if (is_name(gpu.constraint) &&
          std::ranges::find(nodes->features, gpu.constraint) == nodes->features.end())
        continue;
      fitting += nodes->nodes;
      if (fewest_cpus == 0 || nodes->cpus < fewest_cpus) fewest_cpus = nodes->cpus;
    }
    // Report the first obstacle. CPUs are compared only if some nodes fit.
    if (gpu.request != "none" && most == 0) {
      add(Level::mend, gpu.name,
          fmt::format("no node of the partition has gres {}{}{}", wanted.name,
                      wanted.type.empty() ? "" : ":", wanted.type),
          kinds.empty()
              ? "a partition with GPUs, or request: none where Slurm does not hand them out"
              : fmt::format("gres: one of {}", one_of(kinds)));
    } else if (gpu.request != "none" && most < gpu.per_node) {
      add(Level::mend, gpu.name,
          fmt::format("per_node is {}, a node has at most {}", gpu.per_node, most),
          fmt::format("per_node: {}", most));
    } else if (fitting == 0) {
      add(Level::mend, gpu.name, fmt::format("no node has the feature '{}'", gpu.constraint),
          features.empty() ? std::string("leave constraint out: no node has features")
                           : fmt::format("constraint: one of {}", one_of(features)));
    } else {
      fits(gpu, fitting);
      if (const std::int64_t wants = cluster_.slurm.cpus_per_gpu * gpu.per_node;
          wants > fewest_cpus) {
        add(Level::mend, gpu.name,
            fmt::format("{} CPUs for the {} GPUs of a node, which has {}", wants, gpu.per_node,
                        fewest_cpus),
            fmt::format("slurm.cpus_per_gpu: {}", fewest_cpus / gpu.per_node));
      }
    }
  }

  // GPUs of the partition that no entry asks for.
  void left_out() {
    std::map<std::string, std::int64_t> kinds;
    for (const SlurmNodes* nodes : nodes_) {
      for (const SlurmGres& gres : nodes->gres) {
        if (gres.name != "gpu" || is_asked_for(gres)) continue;
        kinds[gres.type.empty() ? gres.name : gres.name + ":" + gres.type] +=
            gres.count * nodes->nodes;
      }
    }
    for (const auto& [kind, count] : kinds) {
      add(Level::note, "gpus",
          fmt::format("the partition has {} of {}, which no entry of gpus asks for", count, kind));
    }
  }

  bool is_asked_for(const SlurmGres& gres) const {
    return std::ranges::any_of(cluster_.gpus, [&](const GpuEntry& gpu) {
      if (gpu.name == "cpu") return false;
      return gpu.request == "none" || gpu.gres.empty() || gpu.gres == gres.name ||
             gpu.gres == gres.name + ":" + gres.type;
    });
  }

  // Compares the entry's `nodes` with the nodes that fit. 0 means that the file does not say.
  void fits(const GpuEntry& gpu, std::int64_t nodes) {
    if (gpu.nodes > nodes) {
      add(Level::mend, gpu.name, fmt::format("nodes is {}, the partition has {}", gpu.nodes, nodes),
          fmt::format("nodes: {}", nodes));
    } else {
      add(Level::ok, gpu.name,
          fmt::format("{} with {} each{}", counted(nodes, "node"),
                      counted(gpu.per_node, gpu.name == "cpu" ? "rank" : "GPU"),
                      gpu.nodes == 0 ? "; nodes is not said: no point is too large" : ""));
    }
  }

  // Checks an entry of CPUs. Its per_node counts ranks, and each rank needs a CPU.
  void cpus(const GpuEntry& gpu) {
    std::int64_t all = 0;
    std::int64_t most = 0;
    for (const SlurmNodes* nodes : nodes_) {
      all += nodes->nodes;
      most = std::max(most, nodes->cpus);
    }
    if (gpu.per_node > most) {
      add(Level::mend, gpu.name,
          fmt::format("per_node is {}: ranks of a node, which has {} CPUs", gpu.per_node, most),
          fmt::format("per_node: at most {}", most));
    } else {
      fits(gpu, all);
    }
  }

  // Compares times, memory and numbers of jobs with the limits of the site.
  void limits() {
    // The longest time limit of the partitions; nothing if one of them has no limit.
    std::optional<std::int64_t> longest = 0;
    for (const SlurmNodes* nodes : nodes_) {
      if (longest && (!nodes->max_time_s || *nodes->max_time_s > *longest))
        longest = nodes->max_time_s;
    }
    if (longest && cluster_.max_time_s && *cluster_.max_time_s > *longest) {
      add(Level::mend, "time",
          fmt::format("max is {}, the partition ends jobs after {}",
                      slurm_time(*cluster_.max_time_s), slurm_time(*longest)),
          fmt::format("time.max: {}", slurm_time(*longest)));
    }
    if (longest && !cluster_.max_time_s) {
      add(Level::note, "time",
          fmt::format("the partition ends jobs after {0}; with time.max: {0} no run asks for more",
                      slurm_time(*longest)));
    }
    if (site_.limits_memory && cluster_.slurm.mem.empty()) {
      add(Level::note, "mem",
          "jobs get the site's default memory; slurm.mem: \"0\" is all of a node's");
    }
    if (site_.max_jobs > 0 && cluster_.max_in_flight > site_.max_jobs) {
      add(Level::mend, "limits",
          fmt::format("max_in_flight is {}, the site has at most {} jobs", cluster_.max_in_flight,
                      site_.max_jobs),
          fmt::format("limits.max_in_flight: less than {}", site_.max_jobs));
    }
    if (cluster_.array && cluster_.max_in_flight > 0) {
      add(Level::note, "limits",
          "array: auto has no effect beside max_in_flight, nor with --max-in-flight");
    } else if (cluster_.array) {
      add(Level::ok, "limits",
          site_.max_array_size > 1 ? fmt::format("arrays of up to {}", site_.max_array_size)
                                   : "the site takes no arrays: each run is a job of its own");
    }
  }

  // Not an expression of several features.
  static bool is_name(const std::string& constraint) {
    return !constraint.empty() && constraint.find_first_of("&|[]*()!,") == std::string::npos;
  }

  const Cluster& cluster_;
  const SlurmSite& site_;
  std::vector<const SlurmNodes*> nodes_;  // of the partition that jobs go to
  std::vector<Finding> findings_;
};

}  // namespace

std::int64_t nodes_out_of_service(const Cluster& cluster, const SlurmSite& site) {
  std::int64_t out = 0;
  for (const SlurmNodes& nodes : site.nodes) {
    const std::string& wanted = cluster.slurm.partition;
    if (is_down(nodes) && (wanted.empty() ? nodes.is_default : wanted == nodes.partition))
      out += nodes.nodes;
  }
  return out;
}

std::vector<Finding> judge_site(const Cluster& cluster, const SlurmSite& site) {
  return SiteJudge(cluster, site).findings();
}

}  // namespace tessera::cluster
