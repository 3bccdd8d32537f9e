// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/plan/make_plan.h"

#include <algorithm>
#include <utility>

#include "apps/submit/plan/plan_memory.h"
#include "lib/base/error.h"
#include "lib/cluster/inventory.h"
#include "lib/sweep/expand.h"

namespace tessera::apps {

namespace {

// Without --gpu_types: every GPU that the clusters have, each dropped where it is not.
void add_gpus_of_clusters(sweep::Grid& grid, const cluster::Loaded& loaded) {
  std::vector<sweep::Setting> named = settings_of(grid, "cluster");
  if (named.empty()) named.push_back({"cluster", std::string("local"), {}});
  sweep::Axis axis;
  axis.keys = {"gpu"};
  for (const sweep::Setting& setting : named) {
    const auto& view = loaded.inventory.clusters.at(std::get<std::string>(setting.value));
    for (const sweep::ClusterGpu& gpu : view.gpus) {
      const sweep::Setting choice{"gpu", gpu.name, setting.where};
      const bool known = std::ranges::any_of(axis.choices, [&](const sweep::Assignment& other) {
        return other.front().value == choice.value;
      });
      if (!known) axis.choices.push_back({choice});
    }
  }
  // Outside the number of devices, as a reader of the table expects.
  auto& axes = grid.matrix->axes;
  const auto place = std::ranges::find_if(
      axes, [](const sweep::Axis& other) { return other.keys.front() == "gpus"; });
  axes.insert(place, std::move(axis));
}

}  // namespace

Plan make_plan(const SubmitRequest& request) try {
  sweep::Grid grid = request.grid;
  cluster::Loaded loaded = cluster::load_inventory(grid, request.gpu_catalogue);
  if (!request.chooses_gpu) add_gpus_of_clusters(grid, loaded);
  Plan plan;
  plan.project = request.project;
  plan.repeats = request.repeats;
  plan.expansion = sweep::expand(grid, loaded.inventory);
  plan.clusters = std::move(loaded.clusters);
  plan.catalogue = std::move(loaded.inventory.catalogue);
  find_capabilities(plan);
  plan_memory(plan);
  return plan;
} catch (const Error& fault) {
  const bool of_flags =
      fault.where().starts_with('-') || (fault.where().empty() && !request.has_sweep);
  if (fault.code() == ExitCode::input && of_flags)
    throw Error(ExitCode::usage, fault.where(), fault.problem(), fault.fix());
  throw;
}

}  // namespace tessera::apps
