// Brings the ledger up to what has really happened since: runs that ended while nobody watched,
// runs that still live.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lib/cluster/local_queue.h"
#include "lib/ledger/ledger.h"

namespace tessera::submit {

struct Reconciled {
  std::vector<cluster::AdoptedRun> living;  // local runs of an earlier submit
  std::vector<ledger::Entry> finals;        // to be appended: their ends, as their logs tell
  std::vector<std::string> elsewhere;  // runs on another host, of which nothing can be known here
};

// Looks at every local attempt without a final status, and at the logs of those that ended ok: one
// that is gone or damaged makes the attempt `missing`. An intent whose process never began is
// `missing`: it may be run again. One whose process is gone has its status from its log. Reads
// only.
Reconciled reconcile_local(const std::filesystem::path& project_dir,
                           const std::map<std::string, ledger::RunState>& states);

}  // namespace tessera::submit
