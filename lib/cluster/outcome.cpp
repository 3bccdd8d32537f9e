#include "lib/cluster/outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "lib/base/error.h"
#include "lib/runlog/reader.h"

namespace tessera::cluster {

namespace fs = std::filesystem;
using runlog::Status;

namespace {

constexpr int kSignalBase = 128;
constexpr int kNoProgram = 127;

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
  if (exit_code == kNoProgram) return {Status::start_fail, "the trainer could not be started"};
  if (exit_code > kSignalBase) {
    const int number = exit_code - kSignalBase;
    return {Status::failed, fmt::format("ended by signal {} ({})", number, ::strsignal(number))};
  }
  return {Status::failed, fmt::format("ended with exit code {}", exit_code)};
}

bool has_result(const fs::path& run_dir, int attempt, Status status) {
  const auto path = log_of(run_dir, attempt);
  if (!path) return false;
  try {
    const runlog::LogFile file = runlog::read_log_file(*path, runlog::Depth::row);
    return std::ranges::any_of(file.logs, [&](const auto& log) {
      return log.footer.has_value() && log.footer->status == status;
    });
  } catch (const Error&) {
    return false;  // no longer readable
  }
}

Outcome outcome_of_cancelled(const Outcome& outcome) {
  Outcome told = outcome;
  if (outcome.status == Status::partial) told.reason = "cancelled by its user";
  if (outcome.status == Status::failed) {
    told.status = Status::cancelled;
    told.reason = "by its user";
  }
  return told;
}

bool has_log(const fs::path& run_dir, int attempt) {
  return log_of(run_dir, attempt).has_value();
}

Outcome outcome_of_attempt(const fs::path& run_dir, int attempt, std::optional<int> exit_code) {
  const auto path = log_of(run_dir, attempt);
  if (!path) {
    if (!exit_code) return {Status::start_fail, "ended without a log"};
    const Outcome outcome = outcome_of_exit(*exit_code);
    // Success without a log is none: nothing was measured.
    return outcome.status == Status::ok ? Outcome{Status::start_fail, "ended without a log"}
                                        : outcome;
  }
  const runlog::LogFile file = runlog::read_log_file(*path, runlog::Depth::row);
  const auto footer =
      std::ranges::find_if(file.logs, [](const auto& log) { return log.footer.has_value(); });
  if (footer != file.logs.end()) {
    const runlog::StepStatistics& steps = footer->footer->steps;
    return {.status = footer->footer->status,
            .reason = footer->footer->reason,
            .tokens_per_s =
                steps.measured_s > 0 ? static_cast<double>(steps.tokens) / steps.measured_s : 0,
            .wall_s = footer->footer->wall_s.value_or(0),
            .cpu_share = footer->footer->cpu_share.value_or(1)};
  }
  const runlog::StepStatistics steps =
      file.logs.empty() ? runlog::StepStatistics{} : runlog::statistics(file.logs.front().steps);
  std::string reason = "ended without a footer";
  if (exit_code && *exit_code != 0)
    reason = outcome_of_exit(*exit_code).reason + ", without a footer";
  if (steps.measured > 0) return {Status::partial, reason};
  if (exit_code && *exit_code != 0) return {outcome_of_exit(*exit_code).status, reason};
  return {Status::failed, reason};
}

}  // namespace tessera::cluster
