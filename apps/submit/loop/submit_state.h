// SPDX-License-Identifier: Apache-2.0
// What the parts of one submit share: where it submits to, what is in flight, and what it has come
// to so far. For submit.cpp and its parts (reconcile.h, hand_over.h, watch.h) only. One thread.
#pragma once

#include <atomic>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/submit/loop/oom.h"
#include "apps/submit/loop/options.h"
#include "apps/submit/loop/preparation.h"
#include "lib/jobs/live_jobs.h"
#include "lib/ledger/ledger.h"

namespace tessera::submit {

// The longest that an interrupt, or an end that a log tells of, is not looked for.
inline constexpr double kSlice_s = 0.2;

// The next number that neither ledger nor folder has used.
int free_attempt(const std::filesystem::path& run_dir, int attempt);

// 1 +- a tenth: many submits that wait for one cluster do not ask it all at once.
double jitter();

bool is_out_of_memory(const std::optional<runlog::Status>& status);

// Holds references: all arguments must outlive it.
struct SubmitState {
  SubmitState(cluster::Scheduler& on, const SubmitOptions& with, const SubmitEvents& shown,
              const std::atomic<bool>& told_to_stop);

  const std::string& cluster_name() const { return scheduler.cluster().name; }
  bool is_stuck(const jobs::LiveJob& job) const { return stuck.contains(job.job.job); }

  void note(const std::string& text) const;
  void show_progress() const;
  // At most so long: an interrupt ends it.
  void pause(double seconds) const;

  // Then the ledger says why it is not tried.
  bool is_beyond_wall(const std::string& run);
  // Counts an end, shows it and writes it down.
  void take(const jobs::Ended& ended);
  // An end that cannot be written down stops what is to come, but not what runs.
  void append_or_keep(const ledger::Entry& entry);

  cluster::Scheduler& scheduler;
  const SubmitOptions& options;
  const SubmitEvents& events;
  const std::atomic<bool>& interrupted;
  const std::filesystem::path project_dir;
  const bool stays;  // until all have ended
  ledger::Ledger ledger;
  Preparation preparation;
  OomWall wall;
  std::map<std::string, const sweep::Planned*> points;  // by run

  std::vector<jobs::LiveJob> live;
  std::set<std::string> stuck;  // ids of jobs that will never start
  SubmitReport report;
  Progress progress;
  std::exception_ptr fault;  // what stops it, once what runs here has ended
  bool silent = false;       // the cluster did not answer when it was last asked
};

}  // namespace tessera::submit
