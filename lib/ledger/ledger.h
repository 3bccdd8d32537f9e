// SPDX-License-Identifier: Apache-2.0
// What was submitted where: the ledger of a project.
//
// <workspace>/<project>/.tessera/ledger/<user>@<host>.jsonl holds one sealed JSON line an entry
// (lib/base/crc32.h). Only <user> on <host> appends to it, under the project's lock; everyone reads
// all. Each line is synced before append returns, so that an intent is on disk before anything is
// submitted. No database, no flock, no mmap: some network file systems keep those local without
// saying so.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/base/file.h"
#include "lib/point/point.h"
#include "lib/runlog/record.h"

namespace tessera::ledger {

enum class Op : std::uint8_t {
  plan,      // what a submit selected and dropped
  intent,    // about to be submitted
  accepted,  // the cluster has it, `job` says as what
  adopted,   // found on the cluster after a lost reply
  final,     // ended, with its status
  cancel,    // cancelled by a person
};

struct RunRef {
  std::string run;
  std::string id;
  int repeat = 1;
  int attempt = 1;
  bool operator==(const RunRef&) const = default;
};

// A point that a submit selected, so that collect can name the rows that have no log yet.
struct PlannedPoint {
  std::string id;
  std::string run;    // of the first repeat
  std::string label;  // model name as asked for
  int repeats = 1;
  std::optional<sweep::Point> point;  // nothing in lines of older versions
  bool operator==(const PlannedPoint&) const = default;
};

// A point of the product that was not selected. It has no id: what would make it whole may be what
// is wrong with it.
struct DroppedPoint {
  std::string label;
  std::string reason;  // constraint, batch, duplicate, memory, capability, cluster
  std::string detail;  // the reason in words
  // What was set, by axis (`batch` as a rule: "samples 48"), without what equals the tool's
  // defaults. Empty in lines of older versions.
  std::map<std::string, std::string> values;
  auto operator<=>(const DroppedPoint&) const = default;
};

struct Entry {
  Op op = Op::plan;
  std::string utc;
  std::string user;
  std::string host;
  std::string cluster;
  std::string name;                      // of an intent: the job's
  std::string job;                       // its id there; local: pid
  bool array = false;                    // of an intent: its runs are elements of an array
  std::vector<RunRef> runs;              // of a job; several when packed
  std::vector<std::size_t> places;       // of an intent's runs in the job; empty: 0, 1, ...
  std::string build;                     // commit of the trainer
  std::optional<runlog::Status> status;  // of final
  runlog::EndedBy ended_by = runlog::EndedBy::unknown;  // of final
  std::string reason;
  std::optional<double> queue_s;
  std::vector<PlannedPoint> points;  // of plan, at most kPointsPerPlan a line
  std::vector<DroppedPoint> dropped;
  bool operator==(const Entry&) const = default;
};

inline constexpr std::size_t kPointsPerPlan = 100;

// A line that cannot be believed. `where` is file:line.
struct Damage {
  std::string where;
  std::string what;
};

struct Contents {
  std::vector<Entry> entries;  // of all users, each file's in order; files in order of name
  std::vector<Damage>
      damage;  // a torn last line (a writer died in it) is no damage: nothing came of it
};

// Reads all files of the project. Error(io) if one cannot be read; no ledger at all gives empty
// contents.
Contents read_ledger(const std::filesystem::path& project_dir);

// Error(conflict) naming the first damaged line: submitting on top of an unreadable ledger could
// double a point.
void require_undamaged(const Contents& contents);

// What to do with a last line that has no end.
enum class Tail : std::uint8_t {
  mend,   // its writer is dead: cut it off; only under the project's lock
  trust,  // the holder of the lock may be writing it
};

// Appends to this user's file on this host.
class Ledger {
 public:
  // Makes the folders. Error(io).
  Ledger(const std::filesystem::path& project_dir, std::string user, std::string host,
         Tail tail = Tail::mend);

  // Fills in the user, and utc and host where they are empty; writes and syncs. Error(io): then
  // nothing may be taken as written.
  void append(Entry entry);
  // All of them with one sync.
  void append(std::span<const Entry> entries);

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  std::string user_;
  std::string host_;
};

// What the ledger knows of one attempt of a run.
struct AttemptState {
  int attempt = 1;
  Op last = Op::intent;  // intent, accepted, adopted, final or cancel
  std::string user, host, cluster, job, build;
  std::optional<runlog::Status> status;                 // if final
  runlog::EndedBy ended_by = runlog::EndedBy::unknown;  // if final
  std::string reason;
  std::optional<double> queue_s;
  bool cancelled = false;  // a person told it to end; it may have ended before or otherwise
  // What its intent says: when, the job's name, which of the job's runs it is.
  std::string since_utc;
  std::string name;
  bool array = false;
  std::size_t index = 0;
  bool confirmed = false;  // the cluster has or had it: accepted or adopted
  // What its cluster said of an open attempt: pending, running or unknown. No part of the
  // ledger.
  std::optional<runlog::Status> seen;
  std::string seen_reason;
};

struct RunState {
  RunRef ref;
  std::vector<AttemptState> attempts;  // by number
};

// By run name.
std::map<std::string, RunState> run_states(const Contents& contents);

}  // namespace tessera::ledger

namespace tessera {
template <>
struct Names<ledger::Op> {
  using enum ledger::Op;
  static constexpr std::pair<ledger::Op, std::string_view> table[] = {
      {plan, "plan"},       {intent, "intent"}, {accepted, "accepted"},
      {adopted, "adopted"}, {final, "final"},   {cancel, "cancel"}};
};
}  // namespace tessera
