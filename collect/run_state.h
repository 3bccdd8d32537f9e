// SPDX-License-Identifier: Apache-2.0
// How an attempt ended, or why it has not; and which attempt of a run counts.
#pragma once

#include <optional>
#include <string>

#include "collect/run.h"
#include "lib/ledger/ledger.h"
#include "lib/runlog/footer.h"

namespace tessera::collect {

struct Outcome {
  runlog::Status status = runlog::Status::unknown;
  std::string reason;     // empty for ok
  runlog::Facts facts;    // of rank 0's log, else what the point asks for
  runlog::Footer footer;  // the footer, or as much of one as the step records give
  bool measured() const {
    using runlog::Status;
    return status == Status::ok || status == Status::partial;
  }
};

// From rank 0's footer. Without one, in this order: what its cluster says is pending or running; a
// living process is running; an event that
// names a failure is that failure; a final entry of the ledger is its status; at least one measured
// step is partial; else failed, start-fail or unknown, whichever can be known. A cut log with
// measured steps is partial even where the ledger says why it was cut: the reason tells.
// `submitted` is the ledger's knowledge of this attempt, or nullptr.
Outcome outcome_of(const Attempt& attempt, const ledger::AttemptState* submitted);

// The outcome of a run or attempt that has no files, from the ledger alone.
Outcome outcome_without_files(const ledger::AttemptState* submitted);

// Members of `facts` that the log does not tell, from the point that was asked for.
void fill_from_point(runlog::Facts& facts, const sweep::Point& point);
// As fill_from_point, but for the model's shape; what is 0 in `point` is not known.
void fill_settings(runlog::Facts& facts, const sweep::Point& point);

// The attempt that stands for its run: the newest ok one, else the newest partial one, else the
// newest. `attempts` says how many there were; `stale` that a newer one, of another build, did not
// end ok.
struct RunOutcome {
  Outcome outcome;
  int attempt = 1;
  int attempts = 0;
  bool stale = false;
  std::optional<double> queue_s;
  std::string job;                                // of the ledger
  std::optional<std::filesystem::path> log_file;  // of the attempt
  const Reader* reader = nullptr;                 // of log_file
  std::optional<sweep::Point> point;
};
// `submitted` is the ledger's knowledge of the run, or nullptr; attempts without files count too.
RunOutcome outcome_of(const Run& run, const ledger::RunState* submitted);

}  // namespace tessera::collect
