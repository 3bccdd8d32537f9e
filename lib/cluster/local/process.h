// SPDX-License-Identifier: Apache-2.0
// One attempt of a run as a process of this machine.
//
// It is in a session of its own and survives the submitter; run.<attempt>.pid says who it is. The
// process waits until the submitter has recorded it: a submitter that dies before leaves nothing
// running, and one that dies after leaves a run that the next submit finds.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lib/base/process.h"

namespace tessera::cluster {

struct LocalStart {
  std::filesystem::path trainer;
  std::filesystem::path run_dir;  // made if it is not there
  int attempt = 1;
  std::string spec_json;  // becomes run.<attempt>.json, which must not exist
  std::string user;
  std::map<std::string, std::string> env;  // set for the trainer, on top of the submitter's
  std::vector<std::string> unset;          // taken out of the submitter's environment
  int ranks = 1;                           // of this machine; more than one as `trainer --nproc N`
};

// Error(refused) when the trainer is missing or not executable.
void require_startable(const std::filesystem::path& trainer);

// Starts the trainer on run.<attempt>.json, its output in out.<attempt>.0.0. `accepted` is called
// when the process is known and on disk, before it begins; if it throws, nothing runs. Error(io),
// Error(refused) when the trainer is missing.
ProcessRef start_local(const LocalStart& start,
                       const std::function<void(const ProcessRef&)>& accepted);

// The process of an attempt, as its pid file says; nothing if there is none.
std::optional<ProcessRef> local_process(const std::filesystem::path& run_dir, int attempt);

// Sends the signal to the whole session of a living process of this host; false if it is not alive.
bool signal_local(const ProcessRef& process, int signal_number);

}  // namespace tessera::cluster
