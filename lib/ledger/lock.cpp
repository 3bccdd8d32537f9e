// SPDX-License-Identifier: Apache-2.0
#include "lib/ledger/lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/process.h"

namespace tessera::ledger {

namespace fs = std::filesystem;

namespace {

fs::path lock_path(const fs::path& project_dir) {
  return project_dir / ".tessera" / "lock";
}

// Throws Error(locked) if the holder may live; else the lock is stale and may be removed.
void require_stale(const fs::path& path, const std::string& content) {
  std::string user = "unknown";
  const auto holder = parse_process(content, &user);
  const auto locked = [&](std::string_view by, std::string_view fix) {
    throw Error(ExitCode::locked, path.string(),
                fmt::format("another submit works on this project: {}", by), fix);
  };
  if (!holder) locked("holder unreadable", "if no submit runs, use --break-lock");
  const std::string by = fmt::format("{} on {}, pid {}", user, holder->host, holder->pid);
  switch (liveness(*holder)) {
    case Liveness::alive:
      return locked(by, "wait for it to end");
    case Liveness::elsewhere:
      return locked(by, "wait for it to end; if it is dead, use --break-lock");
    case Liveness::dead:
      return;
  }
}

}  // namespace

ProjectLock::ProjectLock(const fs::path& project_dir, const std::string& user, bool break_lock)
    : path_(lock_path(project_dir)) {
  make_directories(path_.parent_path());
  const ProcessRef self = this_process();
  const fs::path mine = path_.string() + fmt::format(".{}.{}", self.host, self.pid);
  write_file_atomically(mine, process_json(self, user));
  struct Remove {
    fs::path path;
    ~Remove() { ::unlink(path.c_str()); }
  } const remove_mine{mine};
  const fs::path breaking = path_.string() + ".break";
  if (break_lock) ::unlink(breaking.c_str());
  for (int round = 0; round < 10; ++round) {
    if (::link(mine.c_str(), path_.c_str()) == 0) return;
    if (errno != EEXIST) throw_errno(path_, "the lock cannot be made", errno);
    const auto held = read_file_if_exists(path_);
    if (!held) continue;  // given back in between
    if (!break_lock) {
      require_stale(path_, *held);
    } else if (const auto holder = parse_process(*held);
               holder && liveness(*holder) == Liveness::alive) {
      throw Error(ExitCode::locked, path_.string(),
                  fmt::format("its submit lives: pid {} on this host", holder->pid),
                  "wait for it to end, or end it with submit cancel");
    }
    // Only one process that finds the stale lock may take it away, or the second would take away
    // the new lock of the first: whoever makes the second link looks again and is the only one to
    // remove.
    if (::link(mine.c_str(), breaking.c_str()) != 0) {
      if (errno != EEXIST) throw_errno(breaking, "the lock cannot be broken", errno);
      ::usleep(20000);
      continue;
    }
    const Remove remove_breaking{breaking};
    if (read_file_if_exists(path_) == held) ::unlink(path_.c_str());
  }
  throw Error(ExitCode::locked, path_.string(), "another submit is taking this project",
              "try again; if no submit runs, use --break-lock");
}

ProjectLock::~ProjectLock() {
  ::unlink(path_.c_str());
}

std::optional<LockHolder> lock_holder(const fs::path& project_dir) {
  const auto content = read_file_if_exists(lock_path(project_dir));
  if (!content) return std::nullopt;
  LockHolder holder;
  const auto process = parse_process(*content, &holder.user);
  if (!process || liveness(*process) == Liveness::dead) return std::nullopt;
  holder.process = *process;
  return holder;
}

}  // namespace tessera::ledger
