// SPDX-License-Identifier: Apache-2.0
// One submit at a time works on a project: a lock that network file systems keep too.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "lib/base/process.h"

namespace tessera::ledger {

// Made by link(2), which is atomic everywhere. The file says who holds it: host, boot id, pid,
// start time, user. A lock of a dead process on this host and boot is broken by itself; any other
// only by `break_lock`, which takes none whose process is known to live.
class ProjectLock {
 public:
  // Error(locked) naming the holder; Error(io) if the folder cannot be written.
  ProjectLock(const std::filesystem::path& project_dir, const std::string& user,
              bool break_lock = false);
  ProjectLock(const ProjectLock&) = delete;
  ProjectLock& operator=(const ProjectLock&) = delete;
  ~ProjectLock();

 private:
  std::filesystem::path path_;
};

// Who holds the project's lock.
struct LockHolder {
  std::string user;
  ProcessRef process;
};

// The submit that works on the project now: nothing if there is no lock or its holder is known to
// be dead. One on another host is taken for alive. Reads only.
std::optional<LockHolder> lock_holder(const std::filesystem::path& project_dir);

}  // namespace tessera::ledger
