#include "apps/plan_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "apps/progress.h"

namespace tessera::apps {

namespace {

constexpr std::size_t kSources = 3;

bool has_limits(const Plan& plan, const sweep::Planned& point) {
  return plan.clusters.at(point.point.cluster).kind != cluster::Kind::local;
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
  if (cluster.kind == cluster::Kind::local) return {};
  return [&request, &plan](const sweep::Planned& point) {
    const sweep::RunTime time = time_of(request, plan, point);
    // A limit that a person gave says how long the run takes where nothing else does.
    const double otherwise = request.time_s > 0 ? static_cast<double>(request.time_s) : 0;
    return submit::RunTime{.seconds = time.estimate ? time.estimate->seconds : otherwise,
                           .limit_s = time.time_limit_s};
  };
}

std::string time_lines(const SubmitRequest& request, const Plan& plan) {
  std::vector<sweep::RunTime> times;
  for (const sweep::Planned& point : plan.expansion.points) {
    if (has_limits(plan, point)) times.push_back(time_of(request, plan, point));
  }
  if (times.empty()) return {};
  const sweep::GpuHours hours = sweep::gpu_hours(times, plan.repeats);
  std::int64_t shortest = times.front().time_limit_s;
  std::int64_t longest = shortest;
  int cut = 0;
  std::map<std::string, int> sources;
  for (const sweep::RunTime& time : times) {
    shortest = std::min(shortest, time.time_limit_s);
    longest = std::max(longest, time.time_limit_s);
    cut += time.limit_cut ? 1 : 0;
    ++sources[time.source];
  }
  std::string text;
  if (hours.limit_hours > 0) {
    text += fmt::format("GPU-hours: {} expected", hours_text(hours.hours));
    if (hours.unknown > 0)
      text += fmt::format(" without {} run{} that cannot be estimated", hours.unknown,
                          hours.unknown == 1 ? "" : "s");
    text += fmt::format(", {} if every run takes all of its time limit.\n",
                        hours_text(hours.limit_hours));
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
  std::vector<std::pair<int, std::string>> by_count;
  for (const auto& [source, count] : sources) by_count.emplace_back(-count, source);
  std::ranges::sort(by_count);
  for (std::size_t i = 0; i < std::min(kSources, by_count.size()); ++i)
    text += fmt::format("  {} point{}: {}\n", -by_count[i].first,
                        by_count[i].first == -1 ? "" : "s", by_count[i].second);
  if (by_count.size() > kSources)
    text += fmt::format("  and {} other sources\n", by_count.size() - kSources);
  return text;
}

}  // namespace tessera::apps
