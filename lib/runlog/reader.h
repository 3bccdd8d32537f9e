// Reads run logs, ours or damaged or foreign, and never believes a line whose seal does not hold.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/runlog/footer.h"

namespace tessera::runlog {

// One log file of one rank. What is not a sealed record of ours is counted, never an error.
struct Log {
  std::filesystem::path path;
  Facts facts;
  std::optional<Footer> footer;
  std::vector<StepSample> steps;    // only if the footer is absent or all records were asked for
  std::vector<std::string> events;  // text of event records, "kind: text"
  std::optional<Json> header;       // with the point
  std::int64_t records = 0;         // whose seal holds
  std::int64_t damaged = 0;         // start as a record, but the seal does not hold
  std::int64_t foreign = 0;         // other lines that are not empty
  std::int64_t gaps = 0;            // jumps in n
  bool newer_schema = false;        // records of a schema this program does not know: not read
};

enum class Depth : std::uint8_t {
  row,  // first and last 16 KiB if a footer is there, else everything
  all,  // every record
};

// Error(io) if the file cannot be read.
Log read_log(const std::filesystem::path& path, Depth depth);
Log parse_log(std::string_view content, const std::filesystem::path& name);

}  // namespace tessera::runlog
