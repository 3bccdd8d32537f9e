// Submits the points of a plan on this machine: select, record, run, record.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/cluster/cluster_file.h"
#include "lib/cluster/local_queue.h"
#include "lib/submit/capabilities.h"
#include "lib/submit/select.h"
#include "lib/sweep/expand.h"

namespace tessera::submit {

struct SubmitOptions {
  std::string project;
  std::filesystem::path workspace;  // resolved
  std::filesystem::path trainer;
  std::optional<Capabilities> capabilities;  // of the trainer; nothing: it does not answer
  cluster::Cluster cluster;                  // of kind local
  int repeats = 1;
  Only only = Only::missing;
  int max_parallel = 1;
  bool break_lock = false;
  bool profile = false;
};

struct SubmitEvents {
  std::function<void(const std::vector<Choice>&, int adopted)> selected;  // before anything starts
  std::function<void(std::int64_t threads)> measuring;  // the CPU's peak, before the first run
  std::function<void(const std::string& run, const cluster::Outcome&)> ended;
  // The run was faster than the remembered peak, which has been forgotten.
  std::function<void(const std::string& run)> peak_exceeded;
  std::function<void(const cluster::QueueProgress&)> progress;
};

struct SubmitReport {
  int started = 0;
  int ok = 0;
  int failed = 0;                               // ended with any status but ok
  int cancelled = 0;                            // of `submit cancel`; not among the failed
  int ok_before = 0;                            // done before, not started again
  std::map<runlog::Status, int> not_ok_before;  // ended before, not asked for again
  int unselected = 0;                           // not among what `only` asks for
  int others = 0;                               // another user's
  int not_started = 0;                          // interrupted before
};

// Takes the project's lock, reconciles, appends plan lines, then intent, accepted and final of each
// run. Error(locked, io, conflict, refused): nothing is half-written then. `interrupted`: see
// run_local.
SubmitReport submit_local(const sweep::Expansion& plan, const SubmitOptions& options,
                          const SubmitEvents& events, const std::atomic<bool>& interrupted);

}  // namespace tessera::submit
