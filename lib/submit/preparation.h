// What a run of a plan is started with: its specification, its environment, the CPU's peak.
#pragma once

#include <atomic>
#include <map>
#include <optional>
#include <string>

#include "lib/cluster/local_queue.h"
#include "lib/submit/submit_local.h"
#include "lib/sweep/run_spec.h"

namespace tessera::submit {

// Used as LocalQueue's `prepare`. Holds references: options, events and the planned points must
// outlive it.
class Preparation {
 public:
  Preparation(const SubmitOptions& options, const SubmitEvents& events,
              const std::atomic<bool>& interrupted)
      : options_(options), events_(events), interrupted_(interrupted) {}

  void add(const sweep::Planned& point, const ledger::RunRef& ref);
  const ledger::RunRef& ref(const std::string& run) const { return points_.at(run).ref; }

  // Fills in the specification and the environment. Measures the CPU's peaks if nothing runs.
  void operator()(cluster::LocalRun& run, const cluster::Company& company);

  // A run whose MFU is above 100 % of a peak that was measured here shows that the peak was
  // measured on a machine that was slow at the time: it is forgotten, so that the next submit
  // measures it anew. True if so.
  bool forget_peak_if_exceeded(const std::string& run, const cluster::Outcome& outcome) const;

 private:
  void measure_peaks();
  void set_waiting(std::map<std::string, std::string>& env) const;

  struct Each {
    const sweep::Planned* point;
    ledger::RunRef ref;
  };
  const SubmitOptions& options_;
  const SubmitEvents& events_;
  const std::atomic<bool>& interrupted_;
  std::map<std::string, Each> points_;                        // by run
  std::map<std::int64_t, std::optional<sweep::Peak>> peaks_;  // by threads
};

}  // namespace tessera::submit
