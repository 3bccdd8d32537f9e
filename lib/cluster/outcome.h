// SPDX-License-Identifier: Apache-2.0
// How an attempt of a run ended, told from all that it left behind.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "lib/runlog/record.h"

namespace tessera::cluster {

struct Outcome {
  Outcome() = default;
  // Ended by what the status says.
  Outcome(runlog::Status with, std::string why)
      : status(with), ended_by(runlog::ended_by_of(with)), reason(std::move(why)) {}

  runlog::Status status = runlog::Status::unknown;
  runlog::EndedBy ended_by = runlog::EndedBy::unknown;
  std::string reason;
  // Figures of the footer, for people who wait; 0: not known.
  double tokens_per_s = 0;  // of the measured steps, all devices
  double wall_s = 0;
  double cpu_share = 1;  // of the CPU time that its threads wanted, the part that they got
  std::string build;     // "0.3.0 ab12...": the trainer that ran
  bool operator==(const Outcome&) const = default;
};

// What a trainer's exit code alone says (docs/exit-codes.md); 128 + n: ended by signal n.
Outcome outcome_of_exit(int exit_code);

// What is known from outside about the end of an attempt.
struct End {
  std::optional<int> exit_code;          // 128 + n: by signal n
  std::optional<runlog::Status> status;  // what the cluster says; nothing: no fault that it saw
  std::string reason;                    // of status
};

// The footer of the attempt's log outranks everything, and `end` tells only why it was cut short.
// Without a footer a log with measured steps is partial; else a cause outside the run (time limit,
// node, preemption, cancellation, host memory) outranks the exit code, and that any other word of
// the cluster. What the job script noted of this run alone (run_files.h) outranks `end`'s exit
// code, which may be of a whole job. `run_dir` may lack any log.
Outcome outcome_of_attempt(const std::filesystem::path& run_dir, int attempt, const End& end);

// The outcome of an attempt that `submit cancel` ended: its own log says only that it was
// interrupted. With measured steps it stays partial, for its figures are true; without any, and if
// its turn never came, it is cancelled; what ended for another reason keeps that.
Outcome outcome_of_cancelled(const Outcome& outcome);

// Whether rank 0's log of the attempt has a footer that can be read, and it says `status`.
bool has_result(const std::filesystem::path& run_dir, int attempt, runlog::Status status);

// Whether it has a footer at all.
bool has_footer(const std::filesystem::path& run_dir, int attempt);

// Whether rank 0 of the attempt has begun a log.
bool has_log(const std::filesystem::path& run_dir, int attempt);

}  // namespace tessera::cluster
