// Where a project stands, and how to end its runs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lib/runlog/record.h"

namespace tessera::submit {

struct RunStatus {
  std::string run;
  std::string label;
  int attempt = 0;  // the one that decides; 0: never started
  std::string user;
  std::string cluster;
  runlog::Status status = runlog::Status::missing;
  std::string reason;
};

struct ProjectStatus {
  std::vector<RunStatus> runs;      // of every planned point and repeat, in the order of the plan
  std::size_t dropped = 0;          // points that plans dropped
  std::vector<std::string> damage;  // ledger lines that cannot be believed, "file:line: what"
};

// From ledger, pid files and logs; changes nothing, needs no lock. Error(empty) if the project has
// no ledger.
ProjectStatus project_status(const std::filesystem::path& project_dir);

// Tells the living runs of this user on this host to end: SIGTERM, so that each writes a true
// footer. `runs` empty: all. Returns the runs told. Error(empty) if a named run is not one of the
// project's; Error(refused) for another user's run or one on another host.
std::vector<std::string> cancel_runs(const std::filesystem::path& project_dir,
                                     const std::vector<std::string>& runs);

}  // namespace tessera::submit
