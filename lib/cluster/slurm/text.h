// SPDX-License-Identifier: Apache-2.0
// What Slurm's commands print, read as text: it has kept its shape for many versions, the JSON has
// not. Pure functions. Made for the commands that lib/cluster/slurm/scheduler.cpp gives, run with
// TZ=UTC LC_ALL=C SLURM_TIME_FORMAT=%s.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/command.h"
#include "lib/cluster/scheduler.h"

namespace tessera::cluster {

// Lines without white space at their ends; an empty text has none.
std::vector<std::string_view> trimmed_lines(std::string_view text);

// One line of squeue or sacct.
struct SlurmRecord {
  std::string id;     // "18231", "18231_4"; of pending elements of an array in sacct "18231_[0-3]"
  std::string state;  // its word: RUNNING, CANCELLED
  std::string by;     // of "CANCELLED by 1000": the user's number
  std::string reason;
  std::string user;
  std::string name;
  std::string nodes;                                     // empty: none
  std::string elapsed;                                   // as it stands: "00:10:00", "1:28"
  std::optional<std::int64_t> submit_s, start_s, end_s;  // since 1970, by the cluster's clock
  std::optional<int> exit_code;                          // sacct alone knows them
  std::optional<int> exit_signal;
};

// --format=...; the name comes last, for it may hold anything.
inline constexpr std::string_view kSqueueFormat = "%i|%T|%r|%V|%S|%M|%u|%N|%j";
inline constexpr std::string_view kSacctFormat =
    "JobID,State,ExitCode,Submit,Start,End,Elapsed,User,NodeList,JobName";

// Lines that are none of theirs (a plugin's greeting) are passed over.
std::vector<SlurmRecord> parse_squeue(std::string_view text);
std::vector<SlurmRecord> parse_sacct(std::string_view text);

// What a command's failure means.
enum class SlurmFault : std::uint8_t {
  unreachable,    // nothing has reached the controller
  busy,           // the controller said no for now
  refused,        // the controller, or the command itself, said no
  lost,           // there is no knowing what the controller did
  no_accounting,  // there is none to be asked
};
SlurmFault slurm_fault(const CommandResult& result);

// The line of a command's complaint that says most, without "sbatch: error: ".
std::string slurm_complaint(const CommandResult& result);

// "to start at 1796020761" as a date in UTC.
std::string with_dates(std::string text);

// Parses the output of `sbatch --parsable`. Error(unreachable).
Submission parse_sbatch(const CommandResult& result);

// Whether Slurm wrote among a job's output that it ended it for its memory.
bool says_over_memory(std::string_view output);

// "MaxArraySize = 1001" of `scontrol show config`; nothing if it is not there.
std::optional<std::int64_t> slurm_setting(std::string_view config, std::string_view key);
// "ClusterName = dev" of it; empty if it is not there or "(null)".
std::string slurm_text_setting(std::string_view config, std::string_view key);

}  // namespace tessera::cluster
