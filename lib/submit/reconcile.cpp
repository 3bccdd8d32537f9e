#include "lib/submit/reconcile.h"

#include "lib/base/process.h"
#include "lib/cluster/outcome.h"

namespace tessera::submit {

namespace {

ledger::Entry final_entry(const ledger::RunState& state, const ledger::AttemptState& attempt) {
  ledger::Entry entry;
  entry.op = ledger::Op::final;
  entry.cluster = attempt.cluster;
  entry.job = attempt.job;
  entry.runs = {state.ref};
  entry.runs.front().attempt = attempt.attempt;
  return entry;
}

ledger::Entry lost(const ledger::RunState& state, const ledger::AttemptState& attempt) {
  ledger::Entry entry = final_entry(state, attempt);
  entry.status = runlog::Status::missing;
  entry.reason = "it ended ok, but its log is gone or damaged";
  return entry;
}

}  // namespace

Reconciled reconcile_local(const std::filesystem::path& project_dir,
                           const std::map<std::string, ledger::RunState>& states) {
  Reconciled result;
  for (const auto& [run, state] : states) {
    for (const ledger::AttemptState& attempt : state.attempts) {
      const std::filesystem::path run_dir = project_dir / run;
      if (attempt.last == ledger::Op::final) {
        // A result that was removed or damaged since is none: collect has no row for it either.
        if (attempt.status == runlog::Status::ok &&
            !cluster::has_result(run_dir, attempt.attempt, runlog::Status::ok))
          result.finals.push_back(lost(state, attempt));
        continue;
      }
      const auto process = cluster::local_process(run_dir, attempt.attempt);
      const Liveness life = process ? liveness(*process) : Liveness::dead;
      if (!process && attempt.host != host_name()) {
        result.elsewhere.push_back(run);
        continue;
      }
      if (life == Liveness::alive) {
        result.living.push_back(
            {.run = run, .attempt = attempt.attempt, .run_dir = run_dir, .process = *process});
        continue;
      }
      if (life == Liveness::elsewhere) {
        result.elsewhere.push_back(run);
        continue;
      }
      ledger::Entry entry = final_entry(state, attempt);
      if (cluster::has_log(run_dir, attempt.attempt)) {
        cluster::Outcome outcome =
            cluster::outcome_of_attempt(run_dir, attempt.attempt, std::nullopt);
        if (attempt.cancelled) outcome = cluster::outcome_of_cancelled(outcome);
        entry.status = outcome.status;
        entry.reason = outcome.reason;
      } else {
        entry.status = runlog::Status::missing;
        entry.reason = "its submitter ended before it began";
      }
      result.finals.push_back(std::move(entry));
    }
  }
  return result;
}

}  // namespace tessera::submit
