// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/slurm/partition.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "lib/base/error.h"

namespace tessera::cluster {

namespace {

template <class T, class Key>
T& entry_of(std::vector<T>& all, Key T::* member, const Key& key) {
  const auto found = std::ranges::find(all, key, member);
  if (found != all.end()) return *found;
  T& added = all.emplace_back();
  added.*member = key;
  return added;
}

// The fewest that are known.
void lessen(std::int64_t& least, std::int64_t value) {
  if (value > 0) least = least == 0 ? value : std::min(least, value);
}

void add_gpu(PartitionGpu& gpu, const SlurmNodes& nodes, std::int64_t per_node) {
  if (per_node < gpu.per_node) {
    gpu.fewer[per_node] += nodes.nodes;
    return;
  }
  if (per_node > gpu.per_node) {
    if (gpu.nodes > 0) gpu.fewer[gpu.per_node] += gpu.nodes;
    gpu.per_node = per_node;
    gpu.nodes = gpu.cpus = 0;
    gpu.features.clear();
  }
  gpu.nodes += nodes.nodes;
  lessen(gpu.cpus, nodes.cpus);
  for (const std::string& feature : nodes.features) {
    if (std::ranges::find(gpu.features, feature) == gpu.features.end())
      gpu.features.push_back(feature);
  }
}

void add_nodes(Partition& partition, const SlurmNodes& nodes) {
  partition.is_default = nodes.is_default;
  partition.is_up = nodes.is_up;
  partition.max_time_s = nodes.max_time_s;
  if (nodes.nodes <= 0) return;
  partition.nodes += nodes.nodes;
  partition.states[nodes.state] += nodes.nodes;
  lessen(partition.cpus, nodes.cpus);
  std::map<std::string, std::int64_t> counts;  // devices of a type may stand in several pieces
  for (const SlurmGres& gres : nodes.gres) {
    if (gres.name == "gpu" && gres.count > 0) counts[gres.type] += gres.count;
  }
  if (!counts.empty()) partition.gpu_nodes += nodes.nodes;
  for (const auto& [type, count] : counts)
    add_gpu(entry_of(partition.gpus, &PartitionGpu::type, type), nodes, count);
}

}  // namespace

std::vector<Partition> partitions_of(const SlurmSite& site) {
  std::vector<Partition> all;
  for (const SlurmNodes& nodes : site.nodes)
    add_nodes(entry_of(all, &Partition::name, nodes.partition), nodes);
  for (Partition& partition : all) {
    std::ranges::stable_sort(partition.gpus, std::ranges::greater(), &PartitionGpu::nodes);
  }
  return all;
}

const Partition* choose_partition(const std::vector<Partition>& all, const std::string& asked) {
  if (!asked.empty()) {
    const auto found = std::ranges::find(all, asked, &Partition::name);
    if (found != all.end()) return &*found;
    constexpr std::size_t kMostNames = 30;
    std::vector<std::string> names;
    for (const Partition& partition : all) names.push_back(partition.name);
    const std::size_t more = names.size() > kMostNames ? names.size() - kMostNames : 0;
    names.resize(names.size() - more);
    throw Error(ExitCode::usage, "--partition", fmt::format("there is no partition '{}'", asked),
                fmt::format("one of {}{}", fmt::join(names, ", "),
                            more > 0 ? fmt::format(" and {} more", more) : ""));
  }
  const bool some_up = std::ranges::any_of(all, &Partition::is_up);
  const Partition* first = nullptr;
  const Partition* by_default = nullptr;
  const Partition* largest = nullptr;
  for (const Partition& partition : all) {
    if (some_up && !partition.is_up) continue;
    if (first == nullptr) first = &partition;
    if (partition.is_default) by_default = &partition;
    if (partition.gpu_nodes > (largest != nullptr ? largest->gpu_nodes : 0)) largest = &partition;
  }
  if (by_default != nullptr && (by_default->gpu_nodes > 0 || largest == nullptr)) return by_default;
  return largest != nullptr ? largest : first;
}

}  // namespace tessera::cluster
