// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "lib/base/command.h"
#include "lib/base/error.h"
#include "lib/cluster/run_files.h"
#include "lib/runlog/reader.h"

namespace tessera::cluster {

namespace fs = std::filesystem;
using runlog::EndedBy;
using runlog::Status;

namespace {

constexpr int kSignalBase = 128;
constexpr int kNoModules = 126;

// The newest log of rank 0 of the attempt: that of the last restart.
std::optional<fs::path> log_of(const fs::path& run_dir, int attempt) {
  std::optional<fs::path> newest;
  int newest_restart = -1;
  std::error_code fault;
  for (fs::directory_iterator it(run_dir, fault), end; !fault && it != end; it.increment(fault)) {
    runlog::LogFileName parts;
    if (!runlog::parse_log_file_name(it->path().filename().string(), parts)) continue;
    if (parts.attempt != attempt || parts.rank != 0 || parts.restart <= newest_restart) continue;
    newest = it->path();
    newest_restart = parts.restart;
  }
  return newest;
}

// The status in the footer of the attempt's log of rank 0.
std::optional<Status> footer_status(const fs::path& run_dir, int attempt) {
  const auto path = log_of(run_dir, attempt);
  if (!path) return std::nullopt;
  try {
    return runlog::footer_status(*path);
  } catch (const Error&) {
    return std::nullopt;  // no longer readable
  }
}

// A cause that no process of the run can have told by its exit code.
bool is_from_outside(Status status) {
  return status == Status::timeout || status == Status::node_fail || status == Status::preempted ||
         status == Status::cancelled || status == Status::host_oom;
}

// The outcome of an attempt without a footer; nothing if all that is known is that it ended.
std::optional<Outcome> from_outside(const End& end) {
  if (end.status && is_from_outside(*end.status)) return Outcome{*end.status, end.reason};
  // Success without a footer is none: nothing was measured.
  if (end.exit_code && *end.exit_code != 0) return outcome_of_exit(*end.exit_code);
  if (end.status) return Outcome{*end.status, end.reason};
  return std::nullopt;
}

Outcome from_footer(const runlog::Log& log, const End& end) {
  const runlog::Footer& footer = *log.footer;
  const runlog::StepStatistics& steps = footer.steps;
  Outcome outcome(footer.status, footer.reason);
  outcome.ended_by = footer.ended_by;
  if (steps.measured_s > 0)
    outcome.tokens_per_s = static_cast<double>(steps.tokens) / steps.measured_s;
  outcome.wall_s = footer.wall_s.value_or(0);
  outcome.cpu_share = footer.cpu_share.value_or(1);
  outcome.build = log.facts.trainer.value_or("");
  if (log.facts.commit) outcome.build += " " + *log.facts.commit;
  // The run knows only that it was told to end.
  if (footer.ended_by != EndedBy::interrupted || !end.status || !is_from_outside(*end.status))
    return outcome;
  if (*end.status == Status::cancelled) return outcome_of_cancelled(outcome);
  if (outcome.status == Status::failed) outcome.status = *end.status;
  outcome.ended_by = runlog::ended_by_of(*end.status);
  outcome.reason = end.reason;
  return outcome;
}

}  // namespace

Outcome outcome_of_exit(int exit_code) {
  switch (static_cast<ExitCode>(exit_code)) {
    case ExitCode::ok:
      return {Status::ok, ""};
    case ExitCode::spec:
      return {Status::start_fail, "the run specification was refused"};
    case ExitCode::unsupported:
      return {Status::start_fail, "a setting is not supported"};
    case ExitCode::wrong_device:
      return {Status::start_fail, "another device was found than asked for"};
    case ExitCode::log_not_writable:
      return {Status::start_fail, "the run log could not be written"};
    case ExitCode::oom:
      return {Status::oom, "out of device memory"};
    case ExitCode::host_oom:
      return {Status::host_oom, "out of host memory"};
    case ExitCode::nan:
      return {Status::nan, "the loss is not finite"};
    case ExitCode::comm_error:
      return {Status::comm_error, "communication failed"};
    case ExitCode::timeout:
      return {Status::timeout, "no progress, or the time limit was near"};
    default:
      break;
  }
  if (exit_code == kNoModules)
    return {Status::start_fail, "its modules could not be loaded, or the trainer not executed"};
  if (exit_code == kNoProgram)
    return {Status::start_fail, "the trainer is not there: submit doctor says where it is wanted"};
  if (exit_code > kSignalBase) {
    const int number = exit_code - kSignalBase;
    return {Status::failed, fmt::format("ended by signal {} ({})", number, ::strsignal(number))};
  }
  return {Status::failed, fmt::format("ended with exit code {}", exit_code)};
}

bool has_result(const fs::path& run_dir, int attempt, Status status) {
  const auto found = footer_status(run_dir, attempt);
  return found == status;
}

bool has_footer(const fs::path& run_dir, int attempt) {
  return footer_status(run_dir, attempt).has_value();
}

Outcome outcome_of_cancelled(const Outcome& outcome) {
  Outcome told = outcome;
  if (outcome.status == Status::partial) {
    told.reason = "cancelled by its user";
  } else if (outcome.status == Status::failed) {
    told.status = Status::cancelled;
    told.reason = "by its user";
  } else if (outcome.status == Status::missing) {
    told.status = Status::cancelled;
    told.reason = "by its user, before its turn";
  } else {
    return told;
  }
  told.ended_by = EndedBy::cancelled;
  return told;
}

bool has_log(const fs::path& run_dir, int attempt) {
  return log_of(run_dir, attempt).has_value();
}

Outcome outcome_of_attempt(const fs::path& run_dir, int attempt, const End& seen) {
  End end = seen;
  if (const auto noted = noted_exit_code(run_dir, attempt)) end.exit_code = noted;
  const auto path = log_of(run_dir, attempt);
  if (!path) return from_outside(end).value_or(Outcome{Status::start_fail, "ended without a log"});
  const runlog::LogFile file = runlog::read_log_file(*path, runlog::Depth::row);
  const auto footer =
      std::ranges::find_if(file.logs, [](const auto& log) { return log.footer.has_value(); });
  if (footer != file.logs.end()) return from_footer(*footer, end);
  const runlog::StepStatistics steps =
      file.logs.empty() ? runlog::StepStatistics{} : runlog::statistics(file.logs.front().steps);
  const auto cause = from_outside(end);
  Outcome outcome = cause.value_or(Outcome{Status::failed, "ended without a footer"});
  if (cause) outcome.reason += ", without a footer";
  if (steps.measured > 0) outcome.status = Status::partial;
  return outcome;
}

}  // namespace tessera::cluster
