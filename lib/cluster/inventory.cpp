// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/inventory.h"

#include <fmt/format.h>

#include "lib/base/process.h"
#include "lib/hardware/catalogue.h"
#include "lib/model/model_file.h"

namespace tessera::cluster {

sweep::ClusterView view_of(const Cluster& cluster) {
  sweep::ClusterView view;
  view.name = cluster.name;
  const bool is_one_node = cluster.kind == Kind::local;
  for (const GpuEntry& gpu : cluster.gpus) {
    view.gpus.push_back(
        {.name = gpu.name, .per_node = gpu.per_node, .nodes = is_one_node ? 1 : gpu.nodes});
  }
  view.identity = cluster.identity;
  if (cluster.kind == Kind::local) view.cpus = usable_cpus();
  return view;
}

Loaded load_inventory(const sweep::Grid& grid, const std::string& gpu_catalogue) {
  Loaded loaded;
  sweep::Inventory& inventory = loaded.inventory;
  inventory.catalogue = hardware::load_catalogue(gpu_catalogue);
  for (const sweep::Setting& setting : settings_of(grid, "model")) {
    const auto& name = std::get<std::string>(setting.value);
    if (!inventory.models.contains(name))
      inventory.models[name] = model::find_model(name, setting.where);
  }
  std::vector<sweep::Setting> named = settings_of(grid, "cluster");
  // Points that name no cluster run on this machine.
  named.push_back({.key = "cluster", .value = std::string("local"), .where = {}});
  for (const sweep::Setting& setting : named) {
    const auto& name = std::get<std::string>(setting.value);
    if (inventory.clusters.contains(name)) continue;
    const Cluster found = find_cluster(name, setting.where);
    const auto [known, is_new] = loaded.clusters.try_emplace(found.name, found);
    if (!is_new && known->second.source != found.source) {
      throw Error(ExitCode::input, setting.where,
                  fmt::format("'{}' and '{}' are both called {}", known->second.source,
                              found.source, found.name),
                  "rename one of the files");
    }
    inventory.clusters[name] = view_of(found);
  }
  return loaded;
}

}  // namespace tessera::cluster
