// SPDX-License-Identifier: Apache-2.0
// The one error type, and the exit codes of all programs.
#pragma once

#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Documented in docs/exit-codes.md. 0 to 9, 20 and 130 are those of submit and collect, 10 to 19
// the trainer's, which collect turns into the status of a row.
enum class ExitCode : int {
  ok = 0,
  internal = 1,      // a fault of ours
  usage = 2,         // the command line
  input = 3,         // a file that was read: YAML, JSON, log
  empty = 4,         // no point left, no run found
  refused = 5,       // understood, but not to be done: comes later, or another user's run
  io = 6,            // a file or folder cannot be written or read
  locked = 7,        // another submit works on this project
  conflict = 8,      // ledger or identity contradict each other
  runs_failed = 9,   // all was done that could be, some runs did not end ok
  spec = 10,         // trainer: run specification
  unsupported = 11,  // trainer: a setting the engine does not act on
  oom = 12,
  host_oom = 13,
  nan = 14,
  comm_error = 15,
  timeout = 16,
  wrong_device = 17,
  failed = 18,
  log_not_writable = 19,
  unreachable = 20,  // submit: a cluster does not answer, or it refused jobs
  interrupted = 130,
};

// Printed as one line: "where: problem; fix". `where` is file:line:column, a flag, a path or a URL;
// `fix` says what would be right; both may be empty. Each part is one line; who needs one of them
// asks for it and never cuts what().
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, std::string_view where, std::string_view problem, std::string_view fix = {});

  ExitCode code() const { return code_; }
  const std::string& where() const { return where_; }
  const std::string& problem() const { return problem_; }
  const std::string& fix() const { return fix_; }
  // "problem; fix", for a text that has said where.
  std::string without_where() const;

 private:
  ExitCode code_;
  std::string where_, problem_, fix_;
};

// Number of insertions, deletions, replacements and swaps of neighbours between the two, case
// ignored.
int edit_distance(std::string_view a, std::string_view b);

// "did you mean X?" for the nearest of `known`; nothing when none is near.
std::optional<std::string> did_you_mean(std::string_view given,
                                        std::span<const std::string_view> known);
std::optional<std::string> did_you_mean(std::string_view given,
                                        const std::vector<std::string>& known);

// The same, or "one of A, B, C" when none is near; for Error's `fix`.
std::string suggestion(std::string_view given, std::span<const std::string_view> known);
std::string suggestion(std::string_view given, const std::vector<std::string>& known);

}  // namespace tessera
