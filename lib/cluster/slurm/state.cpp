// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/slurm/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lib/cluster/outcome.h"

namespace tessera::cluster {

using runlog::Status;

namespace {

constexpr int kSignalBase = 128;
constexpr int kOutputNotWritable = 53;  // slurmd's code in the place of a signal

struct Word {
  std::string_view word;
  JobState::Phase phase;
};

using enum JobState::Phase;
constexpr std::array kWords = {
    Word{"PENDING", pending},       Word{"CONFIGURING", pending},   Word{"REQUEUED", pending},
    Word{"REQUEUE_HOLD", pending},  Word{"REQUEUE_FED", pending},   Word{"SPECIAL_EXIT", pending},
    Word{"RESV_DEL_HOLD", pending}, Word{"POWER_UP_NODE", pending}, Word{"EXPEDITING", pending},
    Word{"RUNNING", running},       Word{"SUSPENDED", running},     Word{"COMPLETING", running},
    Word{"STOPPED", running},       Word{"RESIZING", running},      Word{"SIGNALING", running},
    Word{"STAGE_OUT", running},     Word{"UPDATE_DB", running},     Word{"COMPLETED", ended},
    Word{"CANCELLED", ended},       Word{"FAILED", ended},          Word{"TIMEOUT", ended},
    Word{"NODE_FAIL", ended},       Word{"PREEMPTED", ended},       Word{"BOOT_FAIL", ended},
    Word{"DEADLINE", ended},        Word{"OUT_OF_MEMORY", ended},   Word{"LAUNCH_FAILED", ended},
    Word{"RECONFIG_FAIL", ended},   Word{"REVOKED", ended},
};

std::optional<JobState::Phase> phase_of(std::string_view word) {
  const auto found = std::ranges::find(kWords, word, &Word::word);
  return found == kWords.end() ? std::nullopt : std::optional(found->phase);
}

std::string after(const SlurmRecord& record) {
  return record.elapsed.empty() ? record.state
                                : fmt::format("{} after {}", record.state, record.elapsed);
}

void set_failed(const SlurmRecord& record, JobState& state) {
  const bool said_why = !record.reason.empty() && record.reason != "None";
  state.end = Status::failed;
  state.end_reason = said_why ? fmt::format("FAILED ({})", record.reason) : "FAILED";
  if (record.reason == "BadConstraints" || (record.nodes.empty() && record.end_s)) {
    // Slurm keeps what it refused as a job that failed without a node.
    state.end = Status::start_fail;
    state.end_reason = "the cluster refused it: it cannot be met by any nodes";
    return;
  }
  if (!record.exit_code) return;
  if (*record.exit_code == 0 && record.exit_signal == kOutputNotWritable) {
    state.end = Status::start_fail;
    state.end_reason = "FAILED 0:53: the job's output file cannot be written on the node";
    return;
  }
  state.exit_code =
      *record.exit_code != 0 ? *record.exit_code : kSignalBase + record.exit_signal.value_or(0);
  const Outcome outcome = outcome_of_exit(*state.exit_code);
  state.end = outcome.status;
  state.end_reason = fmt::format("exit code {}: {}", *state.exit_code, outcome.reason);
}

void set_end(const SlurmRecord& record, JobState& state) {
  const std::string& word = record.state;
  if (word == "COMPLETED") {
    state.exit_code = 0;
    return;
  }
  if (word == "FAILED") return set_failed(record, state);
  state.end_reason = after(record);
  if (word == "TIMEOUT" || word == "DEADLINE") {
    state.end = Status::timeout;
  } else if (word == "NODE_FAIL" || word == "BOOT_FAIL" || word == "RECONFIG_FAIL") {
    state.end = Status::node_fail;
    if (!record.nodes.empty()) state.end_reason += " on " + record.nodes;
  } else if (word == "PREEMPTED") {
    state.end = Status::preempted;
  } else if (word == "OUT_OF_MEMORY") {
    state.end = Status::host_oom;
  } else if (word == "LAUNCH_FAILED") {
    state.end = Status::start_fail;
  } else {  // CANCELLED, REVOKED
    state.end = Status::cancelled;
    state.end_reason = word;
    if (!record.by.empty()) state.end_reason += " by user " + record.by;
    if (slurm_never_starts(record.reason)) state.end_reason += fmt::format(" ({})", record.reason);
  }
}

}  // namespace

JobState slurm_state(const SlurmRecord* queue, const SlurmRecord* accounts) {
  const SlurmRecord& record = queue != nullptr ? *queue : *accounts;
  JobState state;
  state.job = record.id;
  if (record.submit_s && record.start_s && *record.start_s >= *record.submit_s)
    state.queue_s = static_cast<double>(*record.start_s - *record.submit_s);
  const auto phase = phase_of(record.state);
  if (!phase) {
    const std::string kept = fmt::format("unknown({})", record.state);
    // Only the accounts say when it ended; without that it is taken to go on.
    if (record.end_s) {
      state.phase = ended;
      state.end = Status::unknown;
      state.end_reason = kept;
    } else {
      state.phase = running;
      state.reason = kept;
    }
    return state;
  }
  state.phase = *phase;
  if (*phase == pending) {
    const bool is_held = record.state == "REQUEUE_HOLD" || record.state == "SPECIAL_EXIT" ||
                         record.state == "RESV_DEL_HOLD";
    state.reason = record.reason.empty() || record.reason == "None" ? record.state : record.reason;
    state.never_starts = is_held || slurm_never_starts(record.reason);
    state.queue_s.reset();  // squeue has its guess for a start
  } else if (*phase == running) {
    state.reason = record.nodes;
  } else {
    SlurmRecord both = record;
    if (queue != nullptr && accounts != nullptr && phase_of(accounts->state) == ended) {
      both.exit_code = accounts->exit_code;
      both.exit_signal = accounts->exit_signal;
      if (both.by.empty()) both.by = accounts->by;
    }
    set_end(both, state);
  }
  return state;
}

bool slurm_never_starts(std::string_view reason) {
  constexpr std::array<std::string_view, 19> kNever = {"PartitionNodeLimit",
                                                       "PartitionTimeLimit",
                                                       "PartitionConfig",
                                                       "DependencyNeverSatisfied",
                                                       "BadConstraints",
                                                       "JobHeldAdmin",
                                                       "JobHeldUser",
                                                       "JobHoldMaxRequeue",
                                                       "InvalidAccount",
                                                       "InvalidQOS",
                                                       "AccountNotAllowed",
                                                       "QOSNotAllowed",
                                                       "ReservationDeleted",
                                                       "DeadLine",
                                                       "launch_failed_requeued_held",
                                                       "launch failed requeued held",
                                                       "job_requeued_in_held_state",
                                                       "job requeued in held state",
                                                       "user_env_retrieval_failed_requeued_held"};
  if (std::ranges::find(kNever, reason) != kNever.end()) return true;
  if (!reason.starts_with("QOS") && !reason.starts_with("Assoc")) return false;
  // A limit of each job, or a budget that is spent; others are met again when other jobs end.
  const auto holds = [&](std::string_view part) {
    return reason.find(part) != std::string_view::npos;
  };
  if (holds("PerJob") || holds("PerNode") || holds("QOSMin")) return true;
  return holds("Minutes") && !holds("RunMinutes");
}

}  // namespace tessera::cluster
