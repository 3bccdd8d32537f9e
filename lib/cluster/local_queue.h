// Runs attempts on this machine, a few at a time, until all have ended or somebody interrupts.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "lib/cluster/local_process.h"
#include "lib/cluster/outcome.h"

namespace tessera::cluster {

struct LocalRun {
  std::string run;
  int attempt = 1;
  LocalStart start;  // complete once `prepare` has seen it
};

// A run of an earlier submitter that still lives: it is waited for, not started.
struct AdoptedRun {
  std::string run;
  int attempt = 1;
  std::filesystem::path run_dir;
  ProcessRef process;
};

struct LocalQueue {
  std::vector<LocalRun> to_start;  // in this order
  std::vector<AdoptedRun> living;
  int max_parallel = 1;  // processes at once, adopted ones included
};

struct QueueProgress {
  int total = 0;
  int ok = 0;
  int failed = 0;  // ended with any other status
  std::vector<std::string> running;
};

// What else uses the machine when a run is started.
struct Company {
  int running = 0;      // other runs under way now
  int shared_with = 0;  // other runs that it may run beside until it ends
};

// What the caller records and shows. `prepare`, `intent` and `accepted` may throw: then that run is
// not started, those that run are waited for, and the error goes on.
struct QueueEvents {
  // Fills in what `start` lacks; may be empty. May take its time; if it is interrupted meanwhile,
  // the run is not started.
  std::function<void(LocalRun&, const Company&)> prepare;
  std::function<void(const LocalRun&)> intent;
  std::function<void(const LocalRun&, const ProcessRef&)> accepted;
  std::function<void(const std::string& run, int attempt, const Outcome&)> ended;
  std::function<void(const QueueProgress&)> progress;  // several times a second
};

// `interrupted` may be set by a signal handler: then the running ones get SIGTERM, nothing more is
// started, and the call returns when they have ended.
QueueProgress run_local(const LocalQueue& queue, const QueueEvents& events,
                        const std::atomic<bool>& interrupted);

}  // namespace tessera::cluster
