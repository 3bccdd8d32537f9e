// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/slurm/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <initializer_list>

#include "lib/base/error.h"
#include "lib/base/numbers.h"

namespace tessera::cluster {

namespace {

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

bool holds_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(
      parts, [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

bool is_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// The first `count` fields of a line; the last takes the rest. Empty if there are fewer.
std::vector<std::string_view> fields_of(std::string_view line, std::size_t count) {
  std::vector<std::string_view> fields;
  while (fields.size() + 1 < count) {
    const std::size_t bar = line.find('|');
    if (bar == std::string_view::npos) return {};
    fields.push_back(line.substr(0, bar));
    line.remove_prefix(bar + 1);
  }
  fields.push_back(line);
  return fields;
}

// "18231", "18231_4", "18231_[0-3%2]": no step, no heterogeneous part.
bool is_job_id(std::string_view id) {
  const std::size_t bar = id.find('_');
  if (!is_digits(id.substr(0, bar))) return false;
  if (bar == std::string_view::npos) return true;
  const std::string_view element = id.substr(bar + 1);
  return is_digits(element) || (element.starts_with('[') && element.ends_with(']'));
}

// Whoever does not know the time says N/A, Unknown, None or nothing.
std::optional<std::int64_t> time_of(std::string_view text) {
  constexpr std::size_t kMostDigits = 12;
  if (!is_digits(text) || text.size() > kMostDigits) return std::nullopt;
  return parse_integer(text);
}

// Returns the node list; empty if no node is assigned.
std::string nodes_of(std::string_view text) {
  return text == "None assigned" || text == "(null)" ? std::string() : std::string(text);
}

// "CANCELLED by 1000", "CANCELLED+"
void set_state(SlurmRecord& record, std::string_view text) {
  constexpr std::string_view kBy = " by ";
  const std::size_t by = text.find(kBy);
  if (by != std::string_view::npos) record.by = text.substr(by + kBy.size());
  std::string_view word = text.substr(0, by);
  if (word.ends_with('+')) word.remove_suffix(1);
  record.state = word;
}

// "7:0": code and signal
void set_exit(SlurmRecord& record, std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return;
  const auto code = time_of(text.substr(0, colon));
  const auto signal = time_of(text.substr(colon + 1));
  if (!code || !signal) return;
  record.exit_code = static_cast<int>(*code);
  record.exit_signal = static_cast<int>(*signal);
}

}  // namespace

std::vector<std::string_view> trimmed_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.push_back(trimmed(text.substr(0, end)));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

// Parses lines of kSqueueFormat:
// "18231_4|RUNNING|None|1796020761|1796020999|10:00|kim|n[01-02]|NAME".
std::vector<SlurmRecord> parse_squeue(std::string_view text) {
  constexpr std::size_t kFields = 9;
  std::vector<SlurmRecord> records;
  for (const std::string_view line : trimmed_lines(text)) {
    const auto fields = fields_of(line, kFields);
    if (fields.empty() || !is_job_id(fields[0])) continue;
    SlurmRecord record;
    record.id = fields[0];
    set_state(record, fields[1]);
    record.reason = fields[2];
    record.submit_s = time_of(fields[3]);
    record.start_s = time_of(fields[4]);
    record.elapsed = fields[5];
    record.user = fields[6];
    record.nodes = nodes_of(fields[7]);
    record.name = fields[8];
    records.push_back(std::move(record));
  }
  return records;
}

// Parses lines of kSacctFormat:
// "18231|FAILED|7:0|1796020761|1796020999|1796021599|00:10:00|kim|n01|NAME".
std::vector<SlurmRecord> parse_sacct(std::string_view text) {
  constexpr std::size_t kFields = 10;
  std::vector<SlurmRecord> records;
  for (const std::string_view line : trimmed_lines(text)) {
    const auto fields = fields_of(line, kFields);
    if (fields.empty() || !is_job_id(fields[0])) continue;
    SlurmRecord record;
    record.id = fields[0];
    set_state(record, fields[1]);
    set_exit(record, fields[2]);
    record.submit_s = time_of(fields[3]);
    record.start_s = time_of(fields[4]);
    record.end_s = time_of(fields[5]);
    record.elapsed = fields[6];
    record.user = fields[7];
    record.nodes = nodes_of(fields[8]);
    record.name = fields[9];
    records.push_back(std::move(record));
  }
  return records;
}

SlurmFault slurm_fault(const CommandResult& result) {
  if (result.timed_out) return SlurmFault::lost;
  if (result.exit_code == kNoProgram) return SlurmFault::unreachable;
  const std::string text = result.err + "\n" + result.out;
  // What may have reached the controller outranks all else: of several lines the worst counts.
  if (holds_any(text, {"timed out on send/recv", "(send failure)", "(receive failure)",
                       "(shutdown failure)", "Zero Bytes were transmitted",
                       "Unexpected message received", "Unexpected missing socket"})) {
    return SlurmFault::lost;
  }
  if (holds_any(text, {"accounting storage is disabled"})) return SlurmFault::no_accounting;
  // These mean that nothing reached the controller.
  if (holds_any(text,
                {"(connect failure)", "Connection refused", "Unable to establish configuration",
                 "Unable to process configuration file", "could not find or load slurm.conf",
                 "Could not establish a configuration source", "Protocol authentication error",
                 "Munge encode failed", "Name or service not known", "Unable to resolve",
                 "Unable to contact slurm controller", "Problem talking to the database",
                 "slurm_persist_conn_open"})) {
    return SlurmFault::unreachable;
  }
  // The controller has answered, and takes no more for now.
  if (holds_any(text, {"SubmitJob", "MaxSubmit", "Resource temporarily unavailable",
                       "temporarily unable to accept job", "Unable to create job record, try again",
                       "standby mode", "rate limit", "Slurmctld too busy", "being reconfigured"})) {
    return SlurmFault::busy;
  }
  if (holds_any(text, {"Job violates accounting/QOS policy"})) {
    // One message for two things: a named limit of another kind than the number of jobs stays.
    return holds_any(text, {"QOSMax", "QOSMin", "AssocMax", "QOSGrp", "AssocGrp"})
               ? SlurmFault::refused
               : SlurmFault::busy;
  }
  // A command that was killed, or failed without a word, may have done its work.
  constexpr int kSignalled = 128;
  if (result.exit_code > kSignalled || trimmed(text).empty()) return SlurmFault::lost;
  return SlurmFault::refused;
}

std::string slurm_complaint(const CommandResult& result) {
  // A line of rank 3 names a cause, one of rank 2 has a prefix of Slurm's, any other has rank 1.
  // The first line of the best rank is taken.
  std::string_view best;
  int best_rank = 0;
  for (const std::string* text : {&result.err, &result.out}) {
    for (std::string_view line : trimmed_lines(*text)) {
      int rank = 1;
      for (const std::string_view prefix : {"sbatch: ", "squeue: ", "sacct: ", "scancel: ",
                                            "scontrol: ", "sinfo: ", "error: ", "fatal: "}) {
        if (!line.starts_with(prefix)) continue;
        line.remove_prefix(prefix.size());
        rank = 2;
      }
      if (holds_any(line, {"failed: ", "failure: ", " failure)", "timed out", "is disabled",
                           "Could not establish a configuration source"}))
        rank = 3;
      if (!line.empty() && rank > best_rank) {
        best = line;
        best_rank = rank;
      }
    }
  }
  std::string told(best);
  // The name of a limit stands in a line of its own.
  if (holds_any(told, {"accounting/QOS policy"})) {
    for (std::string_view line : trimmed_lines(result.err)) {
      constexpr std::string_view kError = "error: ";
      const std::size_t at = line.find(kError);
      const std::string_view word =
          at == std::string_view::npos ? line : line.substr(at + kError.size());
      if ((word.starts_with("QOS") || word.starts_with("Assoc")) &&
          word.find(' ') == std::string_view::npos)
        told += fmt::format(": {}", word);
    }
  }
  if (!told.empty()) return told;
  if (result.timed_out) return "no answer within its time";
  return fmt::format("exit code {} without a word", result.exit_code);
}

std::string with_dates(std::string text) {
  constexpr std::string_view kBefore = " to start at ";
  const std::size_t at = text.find(kBefore);
  if (at == std::string::npos) return text;
  const std::size_t begin = at + kBefore.size();
  const std::size_t end = std::min(text.find_first_not_of("0123456789", begin), text.size());
  const auto seconds = parse_integer(text.substr(begin, end - begin));
  if (!seconds) return text;
  const std::time_t time = *seconds;
  std::tm parts{};
  std::array<char, 32> date{};
  if (::gmtime_r(&time, &parts) == nullptr ||
      std::strftime(date.data(), date.size(), "%Y-%m-%d %H:%M:%S UTC", &parts) == 0)
    return text;
  return text.replace(begin, end - begin, date.data());
}

Submission parse_sbatch(const CommandResult& result) {
  Submission submission;
  if (result.exit_code == 0 && !result.timed_out) {
    // The last line of the form "18231" or "18231;CLUSTER" is the id. Plugins may print other
    // lines.
    std::vector<std::string_view> lines = trimmed_lines(result.out);
    std::ranges::reverse(lines);
    for (const std::string_view line : lines) {
      const std::string_view id = line.substr(0, line.find(';'));
      if (!is_digits(id) || line.find(' ') != std::string_view::npos) continue;
      submission.job = id;
      submission.text = trimmed(result.err).empty()
                            ? std::string()
                            : slurm_complaint({.exit_code = 0, .err = result.err});
      return submission;
    }
    // sbatch has ended well without naming a job: the cluster may have it.
    submission.kind = Submission::Kind::lost;
    submission.text = fmt::format("sbatch named no job: {}", slurm_complaint(result));
    return submission;
  }
  submission.text = slurm_complaint(result);
  switch (slurm_fault(result)) {
    case SlurmFault::unreachable:
      throw Error(
          ExitCode::unreachable, "sbatch",
          result.exit_code == 127 ? "it is not there or cannot be started" : submission.text,
          "is this a host of the cluster, and does its controller run?");
    case SlurmFault::busy:
      submission.kind = Submission::Kind::busy;
      break;
    case SlurmFault::lost:
      submission.kind = Submission::Kind::lost;
      break;
    case SlurmFault::refused:
    case SlurmFault::no_accounting:
      submission.kind = Submission::Kind::refused;
      break;
  }
  return submission;
}

bool says_over_memory(std::string_view output) {
  return holds_any(
      output, {"exceeded memory limit", "Exceeded job memory limit", "Exceeded step memory limit",
               "oom-kill event", "oom_kill event", "Out Of Memory", "OOM Killed"});
}

std::string slurm_text_setting(std::string_view config, std::string_view key) {
  for (const std::string_view line : trimmed_lines(config)) {
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos || trimmed(line.substr(0, equals)) != key) continue;
    const std::string_view value = trimmed(line.substr(equals + 1));
    return value == "(null)" ? std::string() : std::string(value);
  }
  return {};
}

std::optional<std::int64_t> slurm_setting(std::string_view config, std::string_view key) {
  const std::string value = slurm_text_setting(config, key);
  const std::string_view word = std::string_view(value).substr(0, value.find(' '));
  return is_digits(word) ? parse_integer(word) : std::nullopt;
}

}  // namespace tessera::cluster
