// Finds the files of runs: of a project in a workspace, or below any folders. Reads names only.
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
};

// Which runs are asked for.
struct Selection {
  std::string project;               // empty: every project
  std::vector<std::string> filters;  // each must be in the run's name

  // Projects are compared whole: "mpt" never takes a run of "mpt-h100".
  bool takes(std::string_view project, std::string_view run) const;
};

// Run folders of one project. An absent project folder gives none; Error(io) if it cannot be read.
std::vector<RunFiles> find_project(const std::filesystem::path& workspace,
                                   const std::string& project);

// Every run folder at or below `folder` (one that holds log.*.jsonl, run.*.json or run.*.pid), in
// order of name. Error(io) if `folder` is none; folders below that cannot be read are noted.
std::vector<RunFiles> find_below(const std::filesystem::path& folder, Notes& notes);

// `path` itself, or every regular file below it, in order of name. Error(io) if there is none.
std::vector<std::filesystem::path> find_files(const std::filesystem::path& path, Notes& notes);

}  // namespace tessera::collect
