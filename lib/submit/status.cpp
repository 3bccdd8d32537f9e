#include "lib/submit/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <optional>

#include "lib/base/error.h"
#include "lib/base/process.h"
#include "lib/ledger/ledger.h"
#include "lib/ledger/lock.h"
#include "lib/submit/reconcile.h"
#include "lib/submit/select.h"

namespace tessera::submit {

namespace fs = std::filesystem;
using runlog::Status;

namespace {

ledger::Contents require_ledger(const fs::path& project_dir) {
  ledger::Contents contents = ledger::read_ledger(project_dir);
  if (contents.entries.empty() && contents.damage.empty()) {
    throw Error(ExitCode::empty, project_dir.string(), "nothing was submitted here",
                "check the project's name and --workspace");
  }
  return contents;
}

[[noreturn]] void throw_unknown_run(const std::string& run, const fs::path& project_dir,
                                    const std::map<std::string, ledger::RunState>& states) {
  std::vector<std::string> known;
  for (const auto& [name, state] : states) known.push_back(name);
  // Names that nothing is near to are too long to be listed in a line.
  std::string fix = suggestion(run, known);
  if (!fix.starts_with("did you mean")) {
    fix = fmt::format("submit status {} --all lists its runs", project_dir.filename().string());
  }
  throw Error(ExitCode::empty, run, "no run of this project that was started", fix);
}

}  // namespace

ProjectStatus project_status(const fs::path& project_dir) {
  ledger::Contents contents = require_ledger(project_dir);
  ProjectStatus result;
  for (const ledger::Damage& damage : contents.damage) {
    result.damage.push_back(fmt::format("{}: {}", damage.where, damage.what));
  }
  const Reconciled reconciled = reconcile_local(project_dir, ledger::run_states(contents));
  contents.entries.insert(contents.entries.end(), reconciled.finals.begin(),
                          reconciled.finals.end());
  // The ends found just now were not written by anyone yet.
  const auto states = ledger::run_states(contents);

  std::vector<std::string> order;
  std::map<std::string, RunStatus> by_run;
  for (const ledger::Entry& entry : contents.entries) {
    result.dropped += entry.dropped.size();
    for (const ledger::PlannedPoint& point : entry.points) {
      for (int repeat = 1; repeat <= point.repeats; ++repeat) {
        const std::string run = repeat == 1 ? point.run : fmt::format("{}-r{}", point.run, repeat);
        if (!by_run.contains(run)) order.push_back(run);
        by_run[run].run = run;
        by_run[run].label = point.label;
      }
    }
  }
  for (const std::string& run : order) {
    RunStatus status = by_run.at(run);
    const auto found = states.find(run);
    if (found != states.end()) {
      const ledger::RunState& state = found->second;
      const auto open = std::ranges::find_if(
          state.attempts, [](const auto& a) { return a.last != ledger::Op::final; });
      const ledger::AttemptState& attempt =
          open != state.attempts.end() ? *open : *deciding_attempt(state);
      status.attempt = attempt.attempt;
      status.user = attempt.user;
      status.cluster = attempt.cluster;
      const bool elsewhere =
          std::ranges::find(reconciled.elsewhere, run) != reconciled.elsewhere.end();
      if (open == state.attempts.end()) {
        status.status = attempt.status.value_or(Status::unknown);
        status.reason = attempt.reason;
      } else {
        status.status = elsewhere ? Status::unknown : Status::running;
        if (elsewhere)
          status.reason = fmt::format("runs on {}, which cannot be asked from here", attempt.host);
      }
    }
    result.runs.push_back(std::move(status));
  }
  return result;
}

Cancellation cancel_runs(const fs::path& project_dir, const std::vector<std::string>& runs) {
  const ledger::Contents contents = require_ledger(project_dir);
  const auto states = ledger::run_states(contents);
  for (const std::string& run : runs) {
    if (!states.contains(run)) throw_unknown_run(run, project_dir, states);
  }
  const auto asked = [&](const std::string& run) {
    return runs.empty() || std::ranges::find(runs, run) != runs.end();
  };
  const std::string user = user_name();
  const Reconciled reconciled = reconcile_local(project_dir, states);
  for (const std::string& run : reconciled.elsewhere) {
    if (!runs.empty() && asked(run)) {
      throw Error(ExitCode::refused, run,
                  fmt::format("runs on {}", states.at(run).attempts.back().host),
                  "cancel it there");
    }
  }
  for (const cluster::AdoptedRun& living : reconciled.living) {
    const std::string& owner = states.at(living.run).attempts.back().user;
    if (!runs.empty() && asked(living.run) && owner != user) {
      throw Error(ExitCode::refused, living.run, fmt::format("is {}'s run", owner),
                  "only its user can cancel it");
    }
  }
  Cancellation result;
  const auto holder = ledger::lock_holder(project_dir);
  if (runs.empty() && holder) {
    if (holder->user == user && liveness(holder->process) == Liveness::alive) {
      result.submit = holder->process.pid;
    } else {
      result.submit_not_told =
          fmt::format("{} on {}, pid {}", holder->user, holder->process.host, holder->process.pid);
    }
  }
  // A submit that works on the project has mended the ledger's end already and goes on appending;
  // else it is mended now.
  std::optional<ledger::ProjectLock> lock;
  try {
    if (!holder) lock.emplace(project_dir, user);
  } catch (const Error& error) {
    if (error.code() != ExitCode::locked) throw;
  }
  ledger::Ledger ledger(project_dir, user, host_name(),
                        lock ? ledger::Tail::mend : ledger::Tail::trust);
  std::vector<const cluster::AdoptedRun*> to_tell;
  for (const cluster::AdoptedRun& living : reconciled.living) {
    const ledger::RunState& state = states.at(living.run);
    if (!asked(living.run) || state.attempts.back().user != user) continue;
    ledger::Entry entry;
    entry.op = ledger::Op::cancel;
    entry.cluster = state.attempts.back().cluster;
    entry.runs = {state.ref};
    entry.runs.front().attempt = living.attempt;
    ledger.append(entry);
    to_tell.push_back(&living);
  }
  // The submit hands the signal on to its runs: a second one would end them without a footer.
  if (result.submit != 0 && ::kill(result.submit, SIGTERM) != 0) result.submit = 0;
  for (const cluster::AdoptedRun* living : to_tell) {
    if (result.submit != 0 || cluster::signal_local(living->process, SIGTERM))
      result.runs.push_back(living->run);
  }
  return result;
}

}  // namespace tessera::submit
