// SPDX-License-Identifier: Apache-2.0
// Makes a project's ledger anew from what its runs left: specifications, process files, logs, and
// what the clusters still know.
//
// What leaves nothing in a run's folder cannot be had back: points that were dropped, those that
// were never handed over, who cancelled what, how long jobs waited, and the cause of an end that
// only the submit of the time saw. The next submit of a sweep writes its plan again.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lib/jobs/schedulers.h"

namespace tessera::submit {

struct Rebuilt {
  std::size_t points = 0;
  std::size_t runs = 0;
  std::size_t attempts = 0;
  std::size_t open = 0;  // attempts of which no end is known
  // Whose attempts are passed over, since their ledgers are theirs.
  std::size_t others = 0;
  std::vector<std::string> unreadable;  // "RUN attempt 2: why it is left out"
  std::vector<std::string> silent;      // clusters that could not be asked, and why
  std::vector<std::string> damage;      // of other users' ledgers, "file:line: what"
  std::filesystem::path kept;           // where the old files are; empty: there were none
};

// Under the project's lock. This user's ledger files, of all hosts, go to .tessera/ledger-<utc>;
// the new one takes their place at once, so that a death in between leaves either. `note`:
// settle's. Error(empty) if no attempt of this user is there: the ledger stays as it is.
// Error(locked, io).
Rebuilt rebuild_ledger(const std::filesystem::path& project_dir, jobs::Schedulers& schedulers,
                       bool break_lock, const std::function<void(const std::string&)>& note);

}  // namespace tessera::submit
