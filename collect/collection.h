// SPDX-License-Identifier: Apache-2.0
// From what was asked for to rows: finds runs, reads them, asks the ledger for what has no log,
// computes and orders.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "collect/find.h"
#include "collect/notes.h"
#include "collect/row.h"

namespace tessera::collect {

// A project in a workspace: its runs, and the ledger's points that have none.
struct Project {
  std::filesystem::path workspace;
  std::string name;
};

struct Request {
  std::vector<Project> projects;
  std::vector<std::filesystem::path> folders;  // every run below them
  std::vector<std::filesystem::path> logs;     // files, or folders whose every file is a log
  Selection selection;
  Catalogues catalogues;
  bool ask = false;  // clusters, once each, about runs that the ledger knows no end of
  // Called after each run that was read, if set.
  std::function<void(std::size_t done, std::size_t total)> progress;
};

struct Collection {
  std::vector<Row> rows;  // aggregated, in published order
  Notes notes;
  std::size_t runs = 0;  // read
};

// Error(io) if a project's folder, a folder or a file cannot be read.
Collection collect_rows(const Request& request);

// One run with its outcome and row, for `collect show`.
struct ShownRun {
  Run run;
  RunOutcome outcome;
  Row row;  // of this run alone
  // The repeats of a point: which this is, how many have files or were submitted,
  // and the row that stands for all of them in the results.
  int repeat = 1;
  int repeats = 1;
  Row aggregate;
};
// Those whose name is `name` (or whose id it is, then every repeat). Logs are read whole.
std::vector<ShownRun> find_runs(const Request& request, const std::string& name, Notes& notes);

}  // namespace tessera::collect
