// SPDX-License-Identifier: Apache-2.0
#include "collect/run_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lib/cluster/outcome.h"
#include "lib/point/identity.h"

namespace tessera::collect {

namespace {

using ledger::AttemptState;
using ledger::Op;
using runlog::EndedBy;
using runlog::Status;

// Events whose kind is a failure's name ("oom", "comm-error", "nan", ...) say how the run ended
// when nobody was left to write a footer.
std::optional<Status> failure_named(const std::string& kind) {
  const auto status = from_text<Status>(kind);
  if (!status) return std::nullopt;
  switch (*status) {
    case Status::oom:
    case Status::host_oom:
    case Status::timeout:
    case Status::nan:
    case Status::comm_error:
    case Status::node_fail:
    case Status::preempted:
    case Status::failed:
      return status;
    default:
      return std::nullopt;
  }
}

struct Failure {
  Status status;
  std::string reason;
};

// Returns the first failure that an event names, in rank 0's log or else in another rank's.
std::optional<Failure> failure_in_events(const Attempt& attempt) {
  std::vector<const RankLog*> logs;
  if (attempt.log) logs.push_back(&*attempt.log);
  for (const RankLog& other : attempt.rank_logs) logs.push_back(&other);
  for (const RankLog* of_rank : logs) {
    for (const runlog::Event& event : of_rank->log.events) {
      if (const auto status = failure_named(event.kind)) {
        return Failure{*status,
                       event.text.empty()
                           ? fmt::format("rank {}", of_rank->log.origin.rank)
                           : fmt::format("rank {}: {}", of_rank->log.origin.rank, event.text)};
      }
    }
  }
  return std::nullopt;
}

std::string process_name(const ProcessRef& process) {
  return fmt::format("process {} on {}", process.pid, process.host);
}

// "log: no footer, 3 records lost"; empty if it is whole.
std::string log_faults(const Attempt& attempt) {
  return attempt.log && !attempt.log->faults.empty() ? "log: " + attempt.log->faults
                                                     : std::string();
}

// The same, to go behind a reason.
std::string and_log_faults(const Attempt& attempt) {
  const std::string faults = log_faults(attempt);
  return faults.empty() ? faults : "; " + faults;
}

// Returns the outcome with another status and reason.
Outcome with(Outcome outcome, Status status, std::string reason) {
  outcome.status = status;
  outcome.reason = std::move(reason);
  return outcome;
}

// Takes what the footer says, unless the ledger knows better why the run ended.
Outcome from_footer(Outcome outcome, const RankLog& rank_log, const AttemptState* submitted) {
  outcome.footer = *rank_log.log.footer;
  outcome.status = outcome.footer.status;
  outcome.reason = outcome.footer.reason;
  EndedBy& ended_by = outcome.footer.ended_by;
  // A person cancelled it. The run itself knows only of an interrupt.
  if (submitted != nullptr && submitted->cancelled) {
    cluster::Outcome told(outcome.status, outcome.reason);
    told.ended_by = ended_by;
    told = cluster::outcome_of_cancelled(told);
    outcome.status = told.status;
    outcome.reason = told.reason;
    ended_by = told.ended_by;
  }
  // The run knows only that it was told to end; by what, the cluster said to the ledger.
  if (ended_by == EndedBy::interrupted && submitted != nullptr && submitted->last == Op::final &&
      submitted->status &&
      (outcome.status == Status::failed || submitted->status == outcome.status)) {
    outcome.status = *submitted->status;
    outcome.reason = submitted->reason;
    ended_by = submitted->ended_by;
  }
  // An ok or partial run must have measured something.
  const bool figures = outcome.footer.steps.measured > 0 && outcome.footer.steps.tokens > 0 &&
                       outcome.footer.steps.measured_s > 0;
  if (outcome.measured() && !figures) {
    return with(outcome, Status::unknown,
                fmt::format("the footer says {}, but holds no measured step",
                            to_text(outcome.footer.status)));
  }
  return outcome;
}

// Why an attempt without footer ended, as far as ledger and process file tell.
std::string cause_of_end(const Attempt& attempt, const AttemptState* submitted) {
  if (submitted != nullptr && submitted->last == Op::final && submitted->status) {
    return submitted->reason.empty()
               ? std::string(to_text(*submitted->status))
               : fmt::format("{}: {}", to_text(*submitted->status), submitted->reason);
  }
  if (submitted != nullptr && submitted->last == Op::cancel) return "cancelled";
  if (submitted != nullptr && submitted->seen) return submitted->seen_reason;
  if (attempt.process && liveness(*attempt.process) == Liveness::dead)
    return process_name(*attempt.process) + " is gone";
  if (attempt.process) return process_name(*attempt.process) + " cannot be asked from here";
  return {};
}

// Returns the outcome of an attempt whose log has no footer. run_state.h gives the order of the
// cases.
Outcome without_footer(Outcome outcome, const Attempt& attempt, const AttemptState* submitted) {
  const bool lives = submitted != nullptr &&
                     (submitted->seen == Status::running || submitted->seen == Status::pending);
  if (lives) {
    // What is measured so far is no result yet.
    outcome.footer.steps = {};
    return with(outcome, *submitted->seen, submitted->seen_reason);
  }
  if (attempt.process && liveness(*attempt.process) == Liveness::alive)
    return with(outcome, Status::running, process_name(*attempt.process));
  if (const auto failure = failure_in_events(attempt)) {
    outcome.footer.steps = {};
    return with(outcome, failure->status, failure->reason + and_log_faults(attempt));
  }
  const std::string cause = cause_of_end(attempt, submitted);
  if (outcome.footer.steps.measured > 0) {
    const auto steps = outcome.footer.steps.warmup + outcome.footer.steps.measured;
    return with(outcome, Status::partial,
                fmt::format("the log ends after {} steps{}{}{}", steps, cause.empty() ? "" : ": ",
                            cause, and_log_faults(attempt)));
  }
  if (submitted != nullptr && submitted->last == Op::final && submitted->status &&
      *submitted->status != Status::ok && *submitted->status != Status::partial) {
    return with(outcome, *submitted->status, submitted->reason + and_log_faults(attempt));
  }
  if (submitted != nullptr && submitted->last == Op::cancel)
    return with(outcome, Status::cancelled, "by its user" + and_log_faults(attempt));
  if (attempt.process && liveness(*attempt.process) == Liveness::dead) {
    return attempt.log ? with(outcome, Status::failed, cause + and_log_faults(attempt))
                       : with(outcome, Status::start_fail, cause + " and wrote no record");
  }
  // Only a specification: the run waits, or what the ledger knows happened to it.
  if (submitted != nullptr && !attempt.log_file && !attempt.process) {
    const Outcome waiting = outcome_without_files(submitted);
    return with(outcome, waiting.status, waiting.reason);
  }
  const std::string what = attempt.log        ? log_faults(attempt)
                           : attempt.log_file ? "the log holds no record"
                                              : "there is no log";
  return with(outcome, Status::unknown, cause.empty() ? what : fmt::format("{}; {}", what, cause));
}

}  // namespace

void fill_from_point(runlog::Facts& facts, const sweep::Point& point) {
  // What the log says stays. The point fills in what is absent.
  const auto fill = [](auto& target, const auto& value) {
    if (!target) target = value;
  };
  const model::Shape& shape = point.model;
  fill(facts.d_model, shape.d_model);
  fill(facts.n_layers, shape.n_layers);
  fill(facts.n_heads, shape.n_heads);
  fill(facts.n_kv_heads, shape.n_kv_heads);
  fill(facts.head_dim, shape.head_dim);
  fill(facts.ffn, shape.ffn);
  fill(facts.vocab, shape.vocab);
  fill(facts.norm, std::string(to_text(shape.norm)));
  fill(facts.positions, std::string(to_text(shape.positions)));
  fill(facts.activation, std::string(to_text(shape.activation)));
  fill(facts.tied, shape.tied);
  if (!facts.biases) {
    std::string biases;
    for (const auto& [name, has] :
         {std::pair{"qkv", shape.biases.qkv}, std::pair{"out", shape.biases.out},
          std::pair{"mlp", shape.biases.mlp}, std::pair{"norm", shape.biases.norm}}) {
      if (has) biases += (biases.empty() ? "" : ",") + std::string(name);
    }
    facts.biases = biases;
  }
  fill(facts.n_params, model::parameter_count(shape, point.seq_len));
  fill_settings(facts, point);
}

void fill_settings(runlog::Facts& facts, const sweep::Point& point) {
  const auto fill = [](auto& target, const auto& value) {
    if (!target) target = value;
  };
  facts.settings.complete(sweep::told_settings(point));
  // A pass is one microbatch on each device. accum is the number of passes of a step.
  std::int64_t a_pass = 0;
  if (point.microbatch_size != sweep::kAutoMicrobatch && point.global_batch > 0 &&
      !__builtin_mul_overflow(point.microbatch_size, point.gpus, &a_pass) && a_pass > 0) {
    fill(facts.accum, (point.global_batch - 1) / a_pass + 1);
  }
  fill(facts.gpu_requested, point.gpu);
  fill(facts.cluster, point.cluster);
  fill(facts.env, point.env);
}

Outcome outcome_of(const Attempt& attempt, const AttemptState* submitted) {
  Outcome outcome;
  if (attempt.log) {
    const runlog::Log& log = attempt.log->log;
    outcome.facts = log.facts;
    // The records of two runs cannot be told apart.
    if (log.clash) {
      if (attempt.point) fill_from_point(outcome.facts, *attempt.point);
      return with(outcome, Status::unknown, attempt.log->faults);
    }
    if (log.footer) {
      outcome = from_footer(std::move(outcome), *attempt.log, submitted);
    } else {
      outcome.footer.steps = runlog::statistics(log.steps);
      outcome = without_footer(std::move(outcome), attempt, submitted);
    }
  } else {
    outcome = without_footer(std::move(outcome), attempt, submitted);
  }
  if (!outcome.facts.label && !attempt.label.empty()) outcome.facts.label = attempt.label;
  if (attempt.point) fill_from_point(outcome.facts, *attempt.point);
  return outcome;
}

Outcome outcome_without_files(const AttemptState* submitted) {
  if (submitted == nullptr) return with({}, Status::missing, "selected, never submitted");
  const std::string job =
      submitted->job.empty() ? std::string() : fmt::format(" as job {}", submitted->job);
  if (submitted->seen) return with({}, *submitted->seen, submitted->seen_reason);
  switch (submitted->last) {
    case Op::plan:
      return with({}, Status::missing, "selected, never submitted");
    case Op::intent:
      return with({}, Status::unknown, "about to be submitted when the submitter ended");
    case Op::accepted:
    case Op::adopted:
      return with({}, Status::pending,
                  fmt::format("accepted by {}{}, no record yet", submitted->cluster, job));
    case Op::final:
      // Without a log even an ok of the cluster is no result.
      if (!submitted->status || *submitted->status == Status::ok ||
          *submitted->status == Status::partial) {
        return with({}, Status::missing,
                    fmt::format("it ended {}, but its log is gone or damaged",
                                to_text(submitted->status.value_or(Status::ok))));
      }
      return with({}, *submitted->status, submitted->reason);
    case Op::cancel:
      return with({}, Status::cancelled, "by its user");
  }
  return {};
}

RunOutcome outcome_of(const Run& run, const ledger::RunState* submitted) {
  struct Candidate {
    RunOutcome outcome;
    std::optional<std::string> build;
  };
  // Collect all attempts: those with files, then those that only the ledger knows.
  std::vector<Candidate> candidates;
  const auto state_of = [&](int attempt) -> const AttemptState* {
    if (submitted == nullptr) return nullptr;
    const auto found = std::ranges::find(submitted->attempts, attempt, &AttemptState::attempt);
    return found == submitted->attempts.end() ? nullptr : &*found;
  };
  for (const Attempt& attempt : run.attempts) {
    const AttemptState* state = state_of(attempt.attempt);
    Candidate& candidate = candidates.emplace_back();
    candidate.outcome.outcome = outcome_of(attempt, state);
    candidate.outcome.attempt = attempt.attempt;
    candidate.outcome.log_file = attempt.log_file;
    candidate.outcome.reader = attempt.reader;
    candidate.outcome.point = attempt.point;
    candidate.build = candidate.outcome.outcome.facts.commit;
    if (state != nullptr) {
      candidate.outcome.queue_s = state->queue_s;
      candidate.outcome.job = state->job;
    }
  }
  if (submitted != nullptr) {
    for (const AttemptState& state : submitted->attempts) {
      if (std::ranges::find(run.attempts, state.attempt, &Attempt::attempt) != run.attempts.end())
        continue;
      Candidate& candidate = candidates.emplace_back();
      candidate.outcome.outcome = outcome_without_files(&state);
      candidate.outcome.attempt = state.attempt;
      candidate.outcome.queue_s = state.queue_s;
      candidate.outcome.job = state.job;
      if (!state.build.empty()) candidate.build = state.build;
    }
  }
  if (candidates.empty()) {
    RunOutcome none;
    none.outcome = outcome_without_files(nullptr);
    return none;
  }
  // The newest ok attempt stands for the run, else the newest partial one, else the newest.
  std::ranges::stable_sort(candidates, {}, [](const Candidate& c) { return c.outcome.attempt; });
  const auto rank = [](const Candidate& candidate) {
    const Status status = candidate.outcome.outcome.status;
    return status == Status::ok ? 2 : status == Status::partial ? 1 : 0;
  };
  std::size_t chosen = 0;
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    if (rank(candidates[i]) >= rank(candidates[chosen])) chosen = i;
  }
  RunOutcome result = candidates[chosen].outcome;
  result.attempts = static_cast<int>(candidates.size());
  // Newer attempts with another build show that the figures are of an old one.
  const auto& build = candidates[chosen].build;
  for (std::size_t i = chosen + 1; i < candidates.size(); ++i) {
    if (build && candidates[i].build && *candidates[i].build != *build) result.stale = true;
  }
  return result;
}

}  // namespace tessera::collect
