// SPDX-License-Identifier: Apache-2.0
// A run as its files tell it: its attempts, each with the logs of its ranks.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "collect/find.h"
#include "collect/notes.h"
#include "collect/readers/reader.h"
#include "lib/base/process.h"
#include "lib/point/point.h"
#include "lib/runlog/reader.h"

namespace tessera::collect {

// One rank's log, and what else its file held.
struct RankLog {
  std::filesystem::path path;
  runlog::Log log;
  std::string faults;  // runlog::faults
  const Reader* reader = nullptr;
};

// One start of the trainer: an attempt, or a restart of it by the scheduler.
struct Attempt {
  int attempt = 1;
  int restart = 0;
  std::optional<RankLog> log;                     // of rank 0
  std::vector<RankLog> rank_logs;                 // of the others
  std::optional<std::filesystem::path> log_file;  // rank 0's, whatever it holds
  const Reader* reader = nullptr;                 // of log_file
  std::optional<ProcessRef> process;              // local: who runs it
  bool process_known = false;                     // there is a readable process file
  std::optional<std::filesystem::path> specification;
  std::optional<sweep::Point> point;  // of the header, else of the specification
  std::string label;                  // of the specification
};

struct Run {
  std::string project;  // empty if neither log nor folder name it
  std::string run;
  std::string id;
  int repeat = 1;
  std::filesystem::path folder;   // of its files
  std::vector<Attempt> attempts;  // by attempt and restart
};

// Reads a run's folder. Logs that are not this schema's, that hold nothing of ours, or whose point
// does not have the id that they claim are noted and left out. Nothing if nothing is left.
std::optional<Run> read_run(const RunFiles& files, Notes& notes,
                            runlog::Depth depth = runlog::Depth::row);

// Reads log files on their own (captured output, copies, another trainer's): the runs that they
// hold, in order of file. Where no reader recognises a file's head, ours looks for records in all
// of it. The same attempt in two files is taken once, the one with a footer.
std::vector<Run> read_loose_logs(const std::vector<std::filesystem::path>& files, Notes& notes);

}  // namespace tessera::collect
