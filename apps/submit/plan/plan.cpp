// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "lib/base/file.h"
#include "lib/base/text.h"
#include "lib/cluster/backends.h"
#include "lib/point/data_path.h"
#include "lib/point/identity.h"
#include "lib/point/point_values.h"

namespace tessera::apps {

namespace {

// Whether the trainer beside submit is the one that the cluster's nodes start.
bool starts_own_trainer(const cluster::Cluster& cluster) {
  return cluster.trainer.path.empty() && cluster.trainer.image.empty();
}

// Whether its trainer runs on nodes, which only `submit doctor` asks.
bool runs_on_nodes(const cluster::Cluster& cluster) {
  const cluster::Backend& backend = cluster::backend_of(cluster);
  return backend.can_run() && !backend.is_this_machine;
}

// What the point's trainer lacks for it, as far as that is known.
std::optional<submit::Lack> lacking(const Plan& plan, const sweep::Point& point, Judged judged) {
  const hardware::Gpu* gpu = hardware::find_by_name(plan.catalogue, point.gpu);
  const int compute_capability = gpu == nullptr ? 0 : gpu->compute_capability;
  const auto ask = [&](const submit::Capabilities& trainer, const sweep::Point& asked) {
    return judged == Judged::anywhere ? submit::lacks_anywhere(trainer, asked, compute_capability)
                                      : submit::lacks(trainer, asked, compute_capability);
  };
  const auto here = plan.capabilities.find(point.cluster);
  if (here != plan.capabilities.end()) return ask(here->second, point);
  const auto there = plan.node_trainers.find({point.cluster, point.gpu});
  if (there != plan.node_trainers.end()) {
    const submit::NodeTrainer& trainer = there->second;
    auto lack = ask(trainer.can, point);
    if (!lack) return std::nullopt;
    constexpr std::size_t kDate = 10;  // of 2026-11-30T05:40:00.000Z
    lack->why += fmt::format(" ({} on {}, asked {}; submit doctor asks again)", trainer.version,
                             trainer.node, trainer.utc.substr(0, kDate));
    return lack;
  }
  const cluster::Cluster& cluster = plan.clusters.at(point.cluster);
  if (!runs_on_nodes(cluster) || !plan.own_trainer) return std::nullopt;
  // A login node may have a trainer without CUDA beside submit, and the nodes another.
  if (plan.own_trainer->has_no_gpu_code && point.gpu != "cpu" && !starts_own_trainer(cluster))
    return std::nullopt;
  auto lack = submit::lacks_anywhere(*plan.own_trainer, point, compute_capability);
  if (!lack) return std::nullopt;
  lack->why += fmt::format(" (of the trainer beside submit; submit doctor -c {} asks the nodes')",
                           cluster.name);
  return lack;
}

// "gpu h200: the trainer has no device for it" of several GPUs is one cause.
struct Cause {
  std::string reason;  // without the GPU where it is about that
  bool is_of_gpu = false;
  auto operator<=>(const Cause&) const = default;
};

struct Affected {
  int points = 0;
  std::vector<std::string> gpus;  // each once
};

std::string would_drop(const Cause& cause, const Affected& affected) {
  const std::string of_gpus =
      cause.is_of_gpu ? fmt::format("gpu {}: ", fmt::join(affected.gpus, ", ")) : "";
  return fmt::format("--RUN would drop {}: {}{}", counted(affected.points, "point"), of_gpus,
                     cause.reason);
}

}  // namespace

std::string slug_of(const Plan& plan, const sweep::Planned& point) {
  return sweep::slug(point.label, point.point, plan.project);
}

void find_capabilities(Plan& plan) {
  plan.own_trainer = submit::ask_capabilities(cluster::local_trainer({}));
  for (const auto& [name, cluster] : plan.clusters) {
    if (cluster::backend_of(cluster).is_this_machine) {
      auto can = cluster.trainer.path.empty()
                     ? plan.own_trainer
                     : submit::ask_capabilities(cluster::local_trainer(cluster));
      if (can) plan.capabilities.emplace(name, *std::move(can));
      continue;
    }
    for (const cluster::GpuEntry& gpu : cluster.gpus) {
      if (auto trainer = submit::remembered_trainer(cluster, gpu.name))
        plan.node_trainers.emplace(std::pair(name, gpu.name), *std::move(trainer));
    }
  }
}

void drop_incapable(Plan& plan, Judged judged) {
  std::vector<sweep::Planned> kept;
  for (sweep::Planned& each : plan.expansion.points) {
    const auto lack = lacking(plan, each.point, judged);
    if (!lack) {
      kept.push_back(std::move(each));
      continue;
    }
    plan.expansion.dropped.push_back({.reason = sweep::DropReason::capability,
                                      .detail = lack->text(),
                                      .label = each.label,
                                      .values = sweep::values_of(each.point)});
  }
  plan.expansion.points = std::move(kept);
}

std::vector<std::string> catalogue_notes(const Plan& plan) {
  std::set<std::pair<std::string, std::string>> told;  // cluster, GPU
  std::vector<std::string> notes;
  for (const sweep::Planned& each : plan.expansion.points) {
    if (!told.emplace(each.point.cluster, each.point.gpu).second) continue;
    if (const auto unknown = hardware::unknown_gpu(plan.catalogue, each.point.gpu))
      notes.push_back(fmt::format("{}: {}", plan.clusters.at(each.point.cluster).source, *unknown));
  }
  return notes;
}

std::vector<std::string> run_notes(const Plan& plan) {
  std::map<Cause, Affected> causes;
  std::map<std::string, int> crowded;
  for (const sweep::Planned& each : plan.expansion.points) {
    if (const auto lack = lacking(plan, each.point, Judged::there)) {
      const bool is_of_gpu = lack->of == submit::Lack::Of::gpu;
      Affected& affected = causes[{is_of_gpu ? lack->why : lack->text(), is_of_gpu}];
      ++affected.points;
      if (std::ranges::find(affected.gpus, each.point.gpu) == affected.gpus.end())
        affected.gpus.push_back(each.point.gpu);
      continue;
    }
    const auto found = plan.capabilities.find(each.point.cluster);
    if (found == plan.capabilities.end()) continue;
    const submit::Capabilities& can = found->second;
    if (each.point.threads * each.point.gpus > can.cpus) {
      ++crowded[fmt::format("{} threads on the {} here will wait for each other",
                            each.point.threads * each.point.gpus, counted(can.cpus, "CPU"))];
    }
  }
  std::vector<std::string> notes;
  for (const auto& [cause, affected] : causes) notes.push_back(would_drop(cause, affected));
  for (const auto& [what, count] : crowded)
    notes.push_back(fmt::format("{}: {}", counted(count, "point"), what));
  return notes;
}

std::vector<std::string> unasked_notes(const Plan& plan) {
  std::map<std::string, int> unasked;  // points, by cluster
  for (const sweep::Planned& each : plan.expansion.points) {
    const cluster::Cluster& cluster = plan.clusters.at(each.point.cluster);
    if (runs_on_nodes(cluster) &&
        !plan.node_trainers.contains({each.point.cluster, each.point.gpu}))
      ++unasked[cluster.name];
  }
  std::vector<std::string> notes;
  for (const auto& [name, count] : unasked) {
    notes.push_back(fmt::format(
        "{}: nobody has asked the trainer on {} whether it can run {}; submit doctor -c {} does",
        counted(count, "point"), name, count == 1 ? "it" : "them", name));
  }
  return notes;
}

void require_runnable(const SubmitRequest& request, const Plan& plan) {
  if (!request.not_runnable.empty())
    throw Error(ExitCode::refused, "--RUN", request.not_runnable.front());
  for (const sweep::Planned& each : plan.expansion.points) {
    const cluster::Cluster& cluster = plan.clusters.at(each.point.cluster);
    const cluster::Backend& backend = cluster::backend_of(cluster);
    if (!backend.can_run()) {
      throw Error(
          ExitCode::refused, "--RUN",
          fmt::format("cluster {} is of kind {}, which can be planned for but not run on yet",
                      cluster.name, to_text(cluster.kind)),
          fmt::format("run on a cluster of kind {}", cluster::runnable_kinds()));
    }
    if (!backend.is_this_machine) continue;
    if (request.pack_s > 0) {
      throw Error(ExitCode::refused, "--pack", "this machine has no allocations to share",
                  "leave it out: runs follow each other anyway");
    }
    if (sweep::names_file(each.point.data) && !is_file(each.point.data))
      throw_no_file(each.point.data, "token", "data");
  }
}

std::string obstacle(const SubmitRequest& request, const Plan& plan) {
  try {
    require_runnable(request, plan);
    return {};
  } catch (const Error& fault) {
    return fault.without_where();
  }
}

}  // namespace tessera::apps
