// SPDX-License-Identifier: Apache-2.0
// What a run of a plan is started with: its specification, its environment, the CPU's peak.
#pragma once

#include <atomic>
#include <map>
#include <optional>
#include <string>

#include "apps/submit/loop/options.h"
#include "lib/cluster/outcome.h"
#include "lib/cluster/scheduler.h"
#include "lib/point/run_spec.h"

namespace tessera::submit {

// What else uses this machine when a run is started on it.
struct Company {
  int running = 0;      // other runs under way now
  int shared_with = 0;  // other runs that it may run beside until it ends
};

// Holds references: all arguments and the planned points must outlive it.
class Preparation {
 public:
  Preparation(const SubmitOptions& options, const cluster::Cluster& cluster,
              const SubmitEvents& events, const std::atomic<bool>& interrupted)
      : options_(options), cluster_(cluster), events_(events), interrupted_(interrupted) {}

  void add(const sweep::Planned& point, const ledger::RunRef& ref);

  // All that the attempt is started with. `company`: on this machine; nothing: on a cluster.
  // `in_job`: its place among others; nothing: it has a job of its own.
  // Measures this CPU's peaks if nothing runs here; may take its time.
  cluster::RunStart start_of(const ledger::RunRef& ref, const std::optional<Company>& company,
                             const std::optional<sweep::InJob>& in_job);

  // A run whose MFU is above 100 % of a peak that was measured here shows that the peak was
  // measured on a machine that was slow at the time: it is forgotten, so that the next submit
  // measures it anew. True if so.
  bool forget_peak_if_exceeded(const std::string& run, const cluster::Outcome& outcome) const;

 private:
  void measure_peaks();
  void set_waiting(std::map<std::string, std::string>& env, bool here) const;

  struct Each {
    const sweep::Planned* point;
    ledger::RunRef ref;
  };
  const SubmitOptions& options_;
  const cluster::Cluster& cluster_;
  const SubmitEvents& events_;
  const std::atomic<bool>& interrupted_;
  std::map<std::string, Each> points_;                        // by run
  std::map<std::int64_t, std::optional<sweep::Peak>> peaks_;  // by threads, of this machine
};

}  // namespace tessera::submit
