// SPDX-License-Identifier: Apache-2.0
#include "lib/jobs/resolve_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/process.h"

namespace tessera::jobs {

namespace {

// Seconds that the cluster may still need to show a job whose reply was lost.
double patience_s(const LiveJob& job, const cluster::Scheduler& scheduler) {
  // What starts at once is there at once.
  if (job.confirmed || !scheduler.queues()) return 0;
  const double whole = scheduler.cluster().lookup_s;
  if (job.job.host != host_name()) return whole;
  const auto age = seconds_since_utc(job.job.since_utc);
  return age && *age >= 0 ? std::max(0.0, whole - *age) : whole;
}

}  // namespace

std::vector<LiveJob> resolve_jobs(std::vector<LiveJob> jobs, cluster::Scheduler& scheduler,
                                  const IsCancelled& is_cancelled,
                                  const std::atomic<bool>& interrupted,
                                  const std::function<void(const ledger::Entry&)>& adopted,
                                  const std::function<void(const Ended&)>& ended,
                                  const std::function<void(const std::string&)>& note) {
  const double start_s = monotonic_seconds();
  double longest_s = 0;
  for (const LiveJob& job : jobs) longest_s = std::max(longest_s, patience_s(job, scheduler));
  const double until_s = start_s + longest_s;
  bool noted = false;
  while (!jobs.empty()) {
    std::vector<cluster::OpenJob> open;
    for (const LiveJob& job : jobs) open.push_back(job.job);
    // Asked after the time is over, the answer "never heard of it" is final.
    const bool over = monotonic_seconds() >= until_s;
    std::vector<cluster::JobState> states;
    try {
      states = scheduler.query(open);
    } catch (const Error& error) {
      // What made the reply get lost may keep the cluster silent a while longer.
      if (error.code() != ExitCode::unreachable || over || interrupted || longest_s == 0) throw;
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(1.0, scheduler.poll_s())));
      continue;
    }
    std::vector<LiveJob> rest;
    bool unconfirmed = false;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const Resolved resolved =
          resolve(jobs[i], states[i], over ? Reply::is_lost : Reply::may_come, is_cancelled);
      for (const ledger::Entry& entry : resolved.adopted) adopted(entry);
      for (const Ended& end : resolved.ended) ended(end);
      for (const LiveJob& live : resolved.rest) {
        unconfirmed =
            unconfirmed || (!live.confirmed && states[i].phase == cluster::JobState::Phase::absent);
        rest.push_back(live);
      }
    }
    // An array's elements are adopted under one state: each has its own, asked for next.
    const bool more_known = rest.size() > jobs.size();
    jobs = std::move(rest);
    if ((!unconfirmed && !more_known) || interrupted) return jobs;
    if (!noted && unconfirmed) {
      noted = true;
      note(fmt::format("looking for what was handed over to {} without an answer, at most {:.0f} s",
                       scheduler.cluster().name, until_s - monotonic_seconds()));
    }
    const double pause_s = std::min({1.0, scheduler.poll_s(), scheduler.cluster().lookup_s / 4});
    std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
  }
  return jobs;
}

}  // namespace tessera::jobs
