// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/plan/plan_preview.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "apps/submit/loop/build_jobs.h"
#include "apps/submit/plan/plan_share.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/process.h"
#include "lib/base/text.h"
#include "lib/cluster/backends.h"

namespace tessera::apps {

namespace fs = std::filesystem;

int render_plan(const SubmitRequest& request, const Plan& plan) {
  require_runnable(request, plan);
  const auto clusters = clusters_of(plan);
  const fs::path workspace = workspace_of(request, plan, clusters);
  const fs::path folder = request.render;
  std::map<fs::path, std::string> files;
  std::size_t jobs = 0;
  for (const cluster::Cluster* cluster : clusters) {
    const auto scheduler = cluster::make_scheduler(*cluster, user_name());
    for (const cluster::Job& job :
         submit::planned_jobs(share_of(plan, cluster->name, false), *scheduler,
                              options_of(request, plan, *cluster, workspace))) {
      ++jobs;
      for (auto& [path, content] : scheduler->render(job))
        files[folder / path.lexically_relative(workspace)] = content;
    }
  }
  for (const auto& [path, content] : files) {
    if (fs::exists(path)) {
      throw Error(ExitCode::refused, path.string(), "is there already",
                  "give --render a new folder");
    }
  }
  for (const auto& [path, content] : files) {
    make_directories(path.parent_path());
    write_file_atomically(path, content);
  }
  fmt::print("{} in {} below {}; nothing was submitted\n", counted(jobs, "job"),
             counted(files.size(), "file"), fs::absolute(folder).string());
  return 0;
}

int check_plan(const SubmitRequest& request, const Plan& plan) {
  require_runnable(request, plan);
  const auto clusters = clusters_of(plan);
  const fs::path workspace = workspace_of(request, plan, clusters);
  int refused = 0;
  for (const cluster::Cluster* cluster : clusters) {
    const auto scheduler = cluster::make_scheduler(*cluster, user_name());
    // Jobs of one shape and limit get one answer.
    using Shape = std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
    std::map<Shape, std::vector<cluster::Job>> shapes;
    for (cluster::Job& job : submit::planned_jobs(share_of(plan, cluster->name, false), *scheduler,
                                                  options_of(request, plan, *cluster, workspace)))
      shapes[{job.gpu, job.nodes, job.ranks, job.threads, job.time_limit_s}].push_back(
          std::move(job));
    for (const auto& [shape, jobs] : shapes) {
      const cluster::Job& job = jobs.front();
      std::string answer;
      try {
        answer = scheduler->check(job);
      } catch (const Error& error) {
        if (error.code() == ExitCode::unreachable) {
          throw Error(ExitCode::unreachable, cluster->name,
                      fmt::format("cannot be asked: {}", error.what()),
                      "is this a host of the cluster, and does its controller run?");
        }
        if (error.code() != ExitCode::refused) throw;
        ++refused;
        answer = fmt::format("refused: {}", error.what());
      }
      fmt::print(
          "{}: {} of {} {} on {}{}: {}\n", cluster->name, counted(jobs.size(), "job"), job.ranks,
          job.gpu, counted(job.nodes, "node"),
          job.time_limit_s > 0 ? ", " + duration_text(static_cast<double>(job.time_limit_s)) : "",
          answer);
    }
  }
  if (refused > 0) {
    throw Error(ExitCode::refused, "--check",
                fmt::format("{} of job would be refused", counted(refused, "kind")));
  }
  return 0;
}

}  // namespace tessera::apps
