// SPDX-License-Identifier: Apache-2.0
// Finds the files of runs: of a project in a workspace, or below any folders. Our trainer's files
// are known by their names; in a folder without any, other files are logs if a reader recognises
// them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collect/notes.h"

namespace tessera::collect {

// The parts of "<project>--<slug>-<id>[-rJ]".
struct RunName {
  std::string project;
  std::string id;
  int repeat = 1;
};
// Nothing for any other name.
std::optional<RunName> parse_run_name(std::string_view name);

// One attempt's files in a run folder. A folder that was found by its logs alone has no more.
struct AttemptFiles {
  int attempt = 1;
  std::vector<std::filesystem::path> logs;  // of all restarts and ranks, in order of name
  std::optional<std::filesystem::path> pid;
  std::optional<std::filesystem::path> specification;
};

struct RunFiles {
  std::filesystem::path folder;
  std::vector<AttemptFiles> attempts;  // by number
  // In a folder without attempts: files that are logs by their content, in order of name.
  std::vector<std::filesystem::path> logs;
  std::string project;  // in whose folder it lies; empty: found below any folder

  // The folder's own name, "" of a root.
  std::string name() const;
};

// Which runs are asked for.
struct Selection {
  std::string project;               // empty: every project
  std::vector<std::string> filters;  // each must be in the run's name

  // Projects are compared whole: "mpt" never takes a run of "mpt-h100".
  bool takes(std::string_view project, std::string_view run) const;
};

// The folders with runs in one project's folder, but for those that are called as another project's
// runs. What a folder with another name holds shows when it is read. An absent project folder gives
// none; Error(io) if it cannot be read.
std::vector<RunFiles> find_project(const std::filesystem::path& workspace,
                                   const std::string& project);

// Every folder with runs at or below `folder`, in order of name. One that holds log.*.jsonl,
// run.*.json or run.*.pid is not looked into further. Error(io) if `folder` is none; folders below
// that cannot be read are noted.
std::vector<RunFiles> find_below(const std::filesystem::path& folder, Notes& notes);

// `path` itself, or every regular file below it, in order of name. Error(io) if there is none.
std::vector<std::filesystem::path> find_files(const std::filesystem::path& path, Notes& notes);

}  // namespace tessera::collect
