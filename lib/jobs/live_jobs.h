// SPDX-License-Identifier: Apache-2.0
// Jobs that the ledger knows no end of, and what an answer of their cluster makes of them. Pure but
// for reading run logs.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lib/cluster/outcome.h"
#include "lib/cluster/scheduler.h"
#include "lib/ledger/ledger.h"

namespace tessera::jobs {

// A job of this user with runs that have not ended. An array's elements are one job as long as the
// cluster has not confirmed them, then each its own.
struct LiveJob {
  std::string cluster;
  cluster::OpenJob job;
  std::vector<ledger::RunRef> refs;  // one for each of job.runs
  bool confirmed = false;            // the ledger says that the cluster has or had it
  bool array = false;                // unconfirmed: its runs are an array's elements
  std::vector<std::size_t> indices;  // of them
  bool elsewhere = false;            // nothing of it can be known from this machine
};

// In order of hand-over. `cluster` empty: of all.
std::vector<LiveJob> live_jobs(const std::filesystem::path& project_dir,
                               const std::map<std::string, ledger::RunState>& states,
                               const std::string& user, const std::string& cluster = {});

// As `live`, known to the cluster as `id`: an array as its elements, each a job of its own.
std::vector<LiveJob> confirmed(const LiveJob& live, const std::string& id);

struct Ended {
  ledger::Entry entry;  // final, of one run
  cluster::Outcome outcome;
};

struct Resolved {
  std::vector<ledger::Entry> adopted;  // to be appended, before the ends
  std::vector<Ended> ended;
  std::vector<LiveJob> rest;  // what of it is still open
};

// May the cluster still get a job whose reply was lost?
enum class Reply : std::uint8_t { may_come, is_lost };

// `is_cancelled`: whether a person told the attempt to end; asked only where it matters. An
// unconfirmed job that
// its cluster knows is adopted. One that it does not know is open as long as it may come, then
// `missing`: it may be run again. A confirmed one that is gone without a footer is `unknown`. A run
// whose footer says ok has ended, whatever its job does.
using IsCancelled = std::function<bool(const ledger::RunRef&)>;
Resolved resolve(const LiveJob& live, const cluster::JobState& state, Reply reply,
                 const IsCancelled& is_cancelled);

// By what the ledger said when `states` was read, which must outlive the function.
IsCancelled cancelled_in(const std::map<std::string, ledger::RunState>& states);

// Final entries for attempts that ended ok and whose logs are gone or damaged since: `missing`,
// since collect has no row for them either.
std::vector<ledger::Entry> lost_results(const std::filesystem::path& project_dir,
                                        const std::map<std::string, ledger::RunState>& states);

}  // namespace tessera::jobs
