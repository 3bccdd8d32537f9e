// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/loop/build_jobs.h"

#include "apps/submit/loop/plan_lines.h"
#include "lib/point/identity.h"

namespace tessera::submit {

RunToPlace place_of(const sweep::Planned& point, const SubmitOptions& options) {
  const RunTime time = options.time_of ? options.time_of(point) : RunTime{};
  return {.shape = {.gpu = point.point.gpu,
                    .ranks = point.point.gpus,
                    .nodes = point.point.nodes,
                    .threads = point.point.threads},
          .seconds = time.seconds,
          .time_limit_s = time.limit_s};
}

Grouping grouping_of(cluster::Scheduler& scheduler, const SubmitOptions& options) {
  const bool arrays = scheduler.queues() && scheduler.cluster().array && options.in_flight == 0;
  return {.pack_s = options.pack_s, .array_size = arrays ? scheduler.limits().max_array_size : 0};
}

cluster::Job build_job(const std::string& project, const std::vector<ledger::RunRef>& refs,
                       const RunShape& shape, bool array, std::int64_t time_limit_s) {
  cluster::Job job;
  job.name = sweep::job_name(refs.front().run, refs.front().attempt);
  job.project = project;
  job.array = array;
  job.gpu = shape.gpu;
  job.ranks = shape.ranks;
  job.nodes = shape.nodes;
  job.threads = shape.threads;
  job.time_limit_s = time_limit_s;
  return job;
}

std::optional<sweep::InJob> in_job_of(const cluster::Job& job, std::size_t runs) {
  if (runs < 2) return std::nullopt;
  return sweep::InJob{.name = job.name, .index = job.runs.size(), .array = job.array};
}

std::vector<cluster::Job> planned_jobs(const sweep::Expansion& plan, cluster::Scheduler& scheduler,
                                       const SubmitOptions& options) {
  const SubmitEvents no_events;
  const std::atomic<bool> never{false};
  Preparation preparation(options, scheduler.cluster(), no_events, never);
  const auto planned = planned_points(plan, options.project, options.repeats);
  std::vector<RunToPlace> to_place;
  std::vector<ledger::RunRef> refs;
  for (const Choice& choice : select(planned, {}, {}, "")) {
    preparation.add(plan.points[choice.point], choice.ref);
    to_place.push_back(place_of(plan.points[choice.point], options));
    refs.push_back(choice.ref);
  }
  std::vector<cluster::Job> jobs;
  for (const JobGroup& group : group_jobs(to_place, grouping_of(scheduler, options))) {
    std::vector<ledger::RunRef> of_job;
    for (const std::size_t run : group.runs) of_job.push_back(refs[run]);
    cluster::Job& job =
        jobs.emplace_back(build_job(options.project, of_job, to_place[group.runs.front()].shape,
                                    group.array, group.time_limit_s));
    for (const ledger::RunRef& ref : of_job)
      job.runs.push_back(preparation.start_of(ref, std::nullopt, in_job_of(job, of_job.size())));
  }
  return jobs;
}

}  // namespace tessera::submit
