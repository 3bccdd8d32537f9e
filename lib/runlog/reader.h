// SPDX-License-Identifier: Apache-2.0
// Reads run logs, ours or damaged or foreign, and never believes a line whose seal does not hold.
//
// A file may hold the records of several origins (the captured output of ranks or runs): they are
// told apart by id, repeat, attempt, restart and rank, and never merged.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/runlog/footer.h"
#include "lib/runlog/record.h"
#include "lib/runlog/steps.h"

namespace tessera::runlog {

// What an event record says, with the record's numbers if it has no text.
struct Event {
  std::string kind;  // "oom", "throttled", ...
  std::string text;
  bool operator==(const Event&) const = default;
};

// The records of one origin.
struct Log {
  Origin origin;  // project and run are empty if neither header nor footer is there
  Facts facts;  // of the row records, if the footer and all of them are there; else the sum of the
                // other records
  std::optional<Footer> footer;
  std::vector<StepSample> steps;  // only if the footer is absent or all records were asked for
  std::vector<Event> events;
  bool has_header = false;
  std::string point_json;     // of the header; empty if it has no point
  std::int64_t records = 0;   // whose seal holds
  std::int64_t missing = 0;   // by the jumps in n; known only if the whole file was read
  std::int64_t repeated = 0;  // records with an n that was there already: not taken twice
  // Two headers that contradict each other: two runs with one id wrote here. Nothing that follows
  // the second header is taken.
  bool clash = false;
};

struct LogFile {
  std::filesystem::path path;
  std::vector<Log> logs;      // in order of their first record
  std::int64_t damaged = 0;   // lines that start as a record, but the seal does not hold
  std::int64_t foreign = 0;   // other lines that are not empty
  bool newer_schema = false;  // holds records of a schema this program does not know: not read
  bool whole = true;          // every line was read
};

enum class Depth : std::uint8_t {
  row,  // first and last 16 KiB of a file named as log files are, if its footer is there
  all,  // every record
};

// Error(io) if the file cannot be read.
LogFile read_log_file(const std::filesystem::path& path, Depth depth);
LogFile parse_log_file(std::string_view content, const std::filesystem::path& name,
                       Depth depth = Depth::row);

// The status of the first log of the file that has a footer, as read_log_file(path, Depth::row)
// finds it; nothing if none has one. Where the last record of a file named as log files are is the
// footer of that rank and attempt, nothing else is parsed: of ten thousand runs it must be known at
// once whether each result is still there. Error(io) if the file cannot be read.
std::optional<Status> footer_status(const std::filesystem::path& path);

// What keeps the log from being whole, in words ("no footer, 3 records lost, 2 damaged lines");
// empty if nothing does.
std::string faults(const LogFile& file, const Log& log);

}  // namespace tessera::runlog
