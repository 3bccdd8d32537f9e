// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/plan/plan_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "lib/base/text.h"
#include "lib/cluster/backends.h"

namespace tessera::apps {

namespace {

bool has_limits(const Plan& plan, const sweep::Planned& point) {
  return !cluster::backend_of(plan.clusters.at(point.point.cluster)).is_this_machine;
}

std::string hours_text(double hours) {
  return hours < 10 ? fmt::format("{:.1f}", hours) : fmt::format("{:.0f}", hours);
}

}  // namespace

sweep::RunTime time_of(const SubmitRequest& request, const Plan& plan,
                       const sweep::Planned& point) {
  const cluster::Cluster& cluster = plan.clusters.at(point.point.cluster);
  sweep::RunTime time = sweep::estimate_time(point.point, {.catalogue = &plan.catalogue,
                                                           .rows = sweep::published_rows(),
                                                           .startup_s = cluster.startup_s,
                                                           .max_time_s = cluster.max_time_s,
                                                           .cpu_peak_tflops = {},
                                                           .profile = request.profile});
  if (request.time_s > 0) {
    time.time_limit_s = request.time_s;
    time.limit_cut = false;
  }
  return time;
}

std::function<submit::RunTime(const sweep::Planned&)> times_of(const SubmitRequest& request,
                                                               const Plan& plan,
                                                               const cluster::Cluster& cluster) {
  if (cluster::backend_of(cluster).is_this_machine) return {};
  return [&request, &plan](const sweep::Planned& point) {
    const sweep::RunTime time = time_of(request, plan, point);
    // A limit that a person gave says how long the run takes where nothing else does.
    const double otherwise = request.time_s > 0 ? static_cast<double>(request.time_s) : 0;
    return submit::RunTime{.seconds = time.estimate ? time.estimate->seconds : otherwise,
                           .limit_s = time.time_limit_s};
  };
}

std::string time_lines(const SubmitRequest& request, const Plan& plan, std::size_t width) {
  std::vector<sweep::RunTime> times;
  for (const sweep::Planned& point : plan.expansion.points) {
    if (has_limits(plan, point)) times.push_back(time_of(request, plan, point));
  }
  if (times.empty()) return {};
  const sweep::GpuHours hours = sweep::gpu_hours(times, plan.repeats);
  std::int64_t shortest = times.front().time_limit_s;
  std::int64_t longest = shortest;
  int cut = 0;
  int published = 0;
  double least_mfu = 1;
  double most_mfu = 0;
  std::map<std::string, int> sources;  // the others
  for (const sweep::RunTime& time : times) {
    shortest = std::min(shortest, time.time_limit_s);
    longest = std::max(longest, time.time_limit_s);
    cut += time.limit_cut ? 1 : 0;
    if (!time.published) {
      ++sources[time.source];
      continue;
    }
    ++published;
    least_mfu = std::min(least_mfu, time.estimate->mfu);
    most_mfu = std::max(most_mfu, time.estimate->mfu);
  }
  std::string text;
  if (hours.limit_hours > 0) {
    const std::string unknown =
        hours.unknown == 0
            ? ""
            : fmt::format(" without {} that cannot be estimated", counted(hours.unknown, "run"));
    text += paragraph(
        fmt::format("GPU-hours: {} expected{}, {} if every run takes all of its time limit.",
                    hours_text(hours.hours), unknown, hours_text(hours.limit_hours)),
        width, 0, 2);
  }
  const auto limit = [](std::int64_t seconds) {
    return duration_text(static_cast<double>(seconds));
  };
  text += shortest == longest
              ? fmt::format("Time limit of a run: {}.\n", limit(shortest))
              : fmt::format("Time limits of runs: {} to {}.\n", limit(shortest), limit(longest));
  if (cut > 0)
    text +=
        fmt::format("{} of them cut by the cluster's time.max: the run may end partial.\n", cut);
  const auto add_source = [&](int count, const std::string& source) {
    text += paragraph(fmt::format("{}: {}", counted(count, "point"), source), width, 2, 4);
  };
  if (published > 0) {
    const std::string least = fmt::format("{:.1f}", 100 * least_mfu);
    const std::string most = fmt::format("{:.1f}", 100 * most_mfu);
    add_source(published,
               fmt::format("MFU of the nearest published row, {} %",
                           least == most ? least : fmt::format("{} to {}", least, most)));
  }
  for (const auto& [source, count] : sources) add_source(count, source);
  return text;
}

}  // namespace tessera::apps
