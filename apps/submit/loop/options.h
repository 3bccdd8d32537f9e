// SPDX-License-Identifier: Apache-2.0
// What a submit is told, what it shows meanwhile, and what it came to.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/submit/loop/select.h"
#include "apps/submit/trainers/capabilities.h"
#include "lib/cluster/outcome.h"
#include "lib/hardware/catalogue.h"
#include "lib/sweep/expansion.h"

namespace tessera::submit {

// How long a run is expected to take; all 0: not known.
struct RunTime {
  double seconds = 0;
  std::int64_t limit_s = 0;
};

struct SubmitOptions {
  std::string project;
  std::filesystem::path workspace;           // resolved
  std::filesystem::path trainer;             // here; of a local cluster
  std::optional<Capabilities> capabilities;  // of the trainer; nothing: it does not answer
  hardware::Catalogue catalogue;
  int repeats = 1;
  Selection select;
  int in_flight = 0;      // jobs at once; 0: as many as there are
  bool wait = false;      // stay until all have ended; always so where the cluster keeps no queue
  double rate_per_s = 0;  // hand-overs; 0: no limit
  int max_failures = 3;   // refused jobs, after which no more is handed over
  double pack_s = 0;      // 0: no packing
  std::function<RunTime(const sweep::Planned&)> time_of;  // may be empty
  double max_gpu_hours = 0;  // expected of what would be handed over: more is refused; 0: no limit
  // Points beyond one that ran out of memory on this axis are not tried (oom.h); empty: all are.
  std::string stop_axis_after_oom;
  bool break_lock = false;
  bool profile = false;
};

struct Progress {
  int total = 0;  // runs to be started now, and adopted ones
  int ok = 0;
  int failed = 0;     // ended with any other status
  int submitted = 0;  // jobs handed over now
  int pending = 0;    // runs on the cluster that wait
  std::vector<std::string> running;
};

// What the caller shows; any may be empty.
struct SubmitEvents {
  std::function<void(const std::vector<Choice>&, int adopted)> selected;  // before anything starts
  std::function<void(std::int64_t threads)> measuring;  // the CPU's peak, before the first run
  std::function<void(const std::string& run, const cluster::Outcome&)> ended;
  // The run was faster than the remembered peak, which has been forgotten.
  std::function<void(const std::string& run)> peak_exceeded;
  // The job will never start, as the cluster says; it stays there.
  std::function<void(const std::string& job, const std::string& reason)> never_starts;
  std::function<void(const std::string& text)> note;  // a job refused, the cluster busy or silent
  std::function<void(const Progress&)> progress;      // several times a second while it stays
};

struct SubmitReport {
  int started = 0;  // runs handed over
  int jobs = 0;     // in so many jobs
  int ok = 0;
  int failed = 0;                               // ended with any status but ok
  int cancelled = 0;                            // of `submit cancel`; not among the failed
  int ok_before = 0;                            // done before, not started again
  std::map<runlog::Status, int> not_ok_before;  // ended before, not asked for again
  int unselected = 0;                           // not among what `only` asks for
  int others = 0;                               // another user's
  int on_cluster = 0;                           // runs that have not ended when it returns
  int never_start = 0;                          // of them
  int refused = 0;                              // runs that the cluster would not take
  int skipped = 0;                              // beyond what ran out of memory
  int not_started = 0;                          // interrupted before, or the cluster takes no more
  bool gave_up = false;                         // the cluster takes no more, or refused too many
};

}  // namespace tessera::submit
