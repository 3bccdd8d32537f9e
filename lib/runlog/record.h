// SPDX-License-Identifier: Apache-2.0
// The run log's records: what every one has in common. docs/formats.md is the schema.
//
// A record is one line that starts with {"tessera":2, and ends with its seal (lib/base/crc32.h).
// Units are in the keys. A value that is not known is absent, never 0 or -1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lib/base/names.h"

namespace tessera::runlog {

// The schema of the records that are written. Since 2 the row is in records of its own; before, it
// was a member of the footer.
inline constexpr int kSchema = 2;
inline constexpr int kOldestSchema = 1;  // of the records that are read
// Longest record, seal and line feed included: what one write(2) to a pipe brings over whole beside
// others.
inline constexpr std::size_t kMaxRecordBytes = 3900;

// Whether the line begins as a record of any schema does.
bool starts_as_record(std::string_view line);
// The schema of a line that begins as a record does; nothing where it names none.
std::optional<int> record_schema(std::string_view line);

enum class Kind : std::uint8_t {
  header,
  model,
  effective,
  host,
  software,
  plan,
  peak,
  step,
  event,
  profile,
  row,
  footer
};

// How a run ended, or why it has not. The first four that a trainer's footer can say are ok,
// partial, nan and failed.
enum class Status : std::uint8_t {
  ok,
  partial,  // cut short with at least one measured step
  oom,
  host_oom,
  timeout,
  nan,
  comm_error,
  node_fail,
  preempted,
  cancelled,
  start_fail,
  failed,
  running,
  pending,
  skipped,
  missing,
  unknown,
};

// What ended a run. What is done next hangs on it (what a submit starts again, what counts as
// cancelled), never on the words of a reason.
enum class EndedBy : std::uint8_t {
  unknown,      // nobody knows, or it has not ended
  completed,    // it did all its steps
  interrupted,  // a signal told it to end: it does not know whose
  cancelled,    // a person told it to, by `submit cancel` or by the cluster's own command
  time_limit,   // or no progress
  preempted,
  node_fail,
  out_of_memory,  // of the device or the host
  not_finite,     // its loss
  comm_error,
  error,  // any other fault of its own: the reason says which
};
// As far as the status says it.
EndedBy ended_by_of(Status status);

// Which attempt of which run a record belongs to.
struct Origin {
  std::string project;
  std::string run;
  std::string id;
  int repeat = 1;   // "rep", from 1
  int attempt = 1;  // "try", from 1
  int restart = 0;
  int rank = 0;
};

// "log.<attempt>.<restart>.<rank>.jsonl"
std::string log_file_name(int attempt, int restart, int rank);

struct LogFileName {
  int attempt = 0;
  int restart = 0;
  int rank = 0;
};
// The parts of such a name; false for any other name.
bool parse_log_file_name(std::string_view name, LogFileName& parts);

}  // namespace tessera::runlog

namespace tessera {
template <>
struct Names<runlog::Kind> {
  using enum runlog::Kind;
  static constexpr std::pair<runlog::Kind, std::string_view> table[] = {
      {header, "header"},   {model, "model"},       {effective, "effective"},
      {host, "host"},       {software, "software"}, {plan, "plan"},
      {peak, "peak"},       {step, "step"},         {event, "event"},
      {profile, "profile"}, {row, "row"},           {footer, "footer"}};
};
template <>
struct Names<runlog::Status> {
  using enum runlog::Status;
  static constexpr std::pair<runlog::Status, std::string_view> table[] = {
      {ok, "ok"},
      {partial, "partial"},
      {oom, "oom"},
      {host_oom, "host-oom"},
      {timeout, "timeout"},
      {nan, "nan"},
      {comm_error, "comm-error"},
      {node_fail, "node-fail"},
      {preempted, "preempted"},
      {cancelled, "cancelled"},
      {start_fail, "start-fail"},
      {failed, "failed"},
      {running, "running"},
      {pending, "pending"},
      {skipped, "skipped"},
      {missing, "missing"},
      {unknown, "unknown"}};
};
template <>
struct Names<runlog::EndedBy> {
  using enum runlog::EndedBy;
  static constexpr std::pair<runlog::EndedBy, std::string_view> table[] = {
      {unknown, "unknown"},
      {completed, "completed"},
      {interrupted, "interrupted"},
      {cancelled, "cancelled"},
      {time_limit, "time-limit"},
      {preempted, "preempted"},
      {node_fail, "node-fail"},
      {out_of_memory, "out-of-memory"},
      {not_finite, "not-finite"},
      {comm_error, "comm-error"},
      {error, "error"}};
};
}  // namespace tessera
