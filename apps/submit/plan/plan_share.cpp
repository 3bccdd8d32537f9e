// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/plan/plan_share.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

#include "apps/submit/plan/plan_times.h"
#include "lib/base/command.h"
#include "lib/base/error.h"
#include "lib/base/names.h"
#include "lib/cluster/backends.h"
#include "lib/ledger/state.h"

namespace tessera::apps {

namespace fs = std::filesystem;

namespace {

std::optional<submit::Capabilities> capabilities_of(const Plan& plan, const std::string& cluster) {
  const auto found = plan.capabilities.find(cluster);
  return found == plan.capabilities.end() ? std::nullopt : std::optional(found->second);
}

// "0.3.0 ab12...", as logs and ledger have it, of the trainer that would run now. Error(refused)
// where it cannot be asked here.
std::string build_of(const cluster::Cluster& cluster) {
  const std::string trainer = cluster::local_trainer(cluster).string();
  constexpr std::string_view kName = "trainer ";
  const CommandResult result = run_command({trainer, "--version"});
  if (result.exit_code != 0 || !result.out.starts_with(kName)) {
    throw Error(ExitCode::refused, "--only stale",
                fmt::format("the build of {} cannot be asked from here", trainer),
                "name the runs: submit rerun PROJECT RUN..., or take --only all");
  }
  return result.out.substr(kName.size(), result.out.find('\n') - kName.size());
}

// Runs at once of this machine: each has its GPUs to itself. `asked` where there is no GPU.
int local_in_flight(const Plan& plan, const cluster::Cluster& cluster, int asked) {
  const cluster::Backend& backend = cluster::backend_of(cluster);
  int most = asked;
  for (const sweep::Planned& each : plan.expansion.points) {
    if (each.point.cluster != cluster.name || each.point.gpu == "cpu") continue;
    const auto entry = std::ranges::find(cluster.gpus, each.point.gpu, &cluster::GpuEntry::name);
    if (entry == cluster.gpus.end()) continue;
    const std::int64_t gpus = backend.gpus_at_once(cluster, *entry);
    most = std::min(most, static_cast<int>(std::max<std::int64_t>(1, gpus / each.point.gpus)));
  }
  return most;
}

}  // namespace

std::vector<const cluster::Cluster*> clusters_of(const Plan& plan) {
  std::vector<const cluster::Cluster*> used;
  for (const auto& [name, cluster] : plan.clusters) {
    const bool has_points = std::ranges::any_of(
        plan.expansion.points,
        [&wanted = name](const auto& each) { return each.point.cluster == wanted; });
    if (has_points) used.push_back(&cluster);
  }
  std::ranges::stable_partition(
      used, [](const auto* cluster) { return !cluster::backend_of(*cluster).is_this_machine; });
  return used;
}

fs::path workspace_of(const SubmitRequest& request, const Plan& plan,
                      const std::vector<const cluster::Cluster*>& clusters) {
  const cluster::Cluster* first = nullptr;
  for (const cluster::Cluster* cluster : clusters) {
    if (cluster->workspace.empty()) continue;
    if (first != nullptr && first->workspace != cluster->workspace && request.workspace.empty()) {
      throw Error(ExitCode::conflict, plan.project,
                  fmt::format("{} keeps runs in {}, {} in {}", first->name, first->workspace,
                              cluster->name, cluster->workspace),
                  "give --workspace, or submit to one cluster at a time");
    }
    if (first == nullptr) first = cluster;
  }
  fs::path workspace = ledger::resolve_workspace(plan.project, request.workspace,
                                                 first != nullptr ? first->workspace : "");
  if (first != nullptr && workspace != fs::absolute(first->workspace).lexically_normal()) {
    fmt::print(stderr, "submit: runs of {} are in {}, not in the workspace of cluster {}, {}\n",
               plan.project, workspace.string(), first->name, first->workspace);
  }
  return workspace;
}

sweep::Expansion share_of(const Plan& plan, const std::string& cluster, bool with_dropped) {
  sweep::Expansion share;
  for (const sweep::Planned& point : plan.expansion.points) {
    if (point.point.cluster == cluster) share.points.push_back(point);
  }
  if (with_dropped) share.dropped = plan.expansion.dropped;
  return share;
}

submit::SubmitOptions options_of(const SubmitRequest& request, const Plan& plan,
                                 const cluster::Cluster& cluster, const fs::path& workspace) {
  const bool local = cluster::backend_of(cluster).is_this_machine;
  submit::SubmitOptions options;
  options.project = plan.project;
  options.workspace = workspace;
  options.trainer = cluster::local_trainer(cluster);
  options.capabilities = capabilities_of(plan, cluster.name);
  options.catalogue = plan.catalogue;
  options.repeats = plan.repeats;
  options.select.only = from_text<submit::Only>(request.only).value_or(submit::Only::missing);
  options.select.force = request.force;
  options.select.most_attempts = request.most_attempts;
  if (options.select.only == submit::Only::stale) options.select.build = build_of(cluster);
  options.select.named = request.named;
  const auto first_set = [](auto asked, auto otherwise) { return asked > 0 ? asked : otherwise; };
  options.in_flight =
      local
          ? local_in_flight(plan, cluster,
                            first_set(request.max_parallel, static_cast<int>(cluster.max_parallel)))
          : first_set(request.max_in_flight, static_cast<int>(cluster.max_in_flight));
  options.wait = request.wait;
  options.rate_per_s = local ? 0 : first_set(request.rate_per_s, cluster.rate_per_s);
  options.max_failures = request.max_failures;
  options.pack_s = static_cast<double>(request.pack_s);
  options.time_of = times_of(request, plan, cluster);
  options.max_gpu_hours = request.max_gpu_hours;
  options.stop_axis_after_oom = request.grid.limits.stop_axis_after_oom;
  options.break_lock = request.break_lock;
  options.profile = request.profile;
  return options;
}

}  // namespace tessera::apps
