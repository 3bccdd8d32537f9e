// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/loop/select.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/base/error.h"

namespace tessera::submit {

using runlog::Status;

namespace {

bool wanted(const ledger::AttemptState& attempt, const Selection& selection) {
  const Status status = attempt.status.value_or(Status::unknown);
  // By Ctrl-C, or by `submit cancel`.
  const bool on_request = attempt.ended_by == runlog::EndedBy::interrupted ||
                          attempt.ended_by == runlog::EndedBy::cancelled;
  if (!selection.named.empty()) return true;
  if (status == Status::unknown && selection.force) return true;
  switch (selection.only) {
    case Only::missing:
      return status == Status::missing || status == Status::cancelled ||
             (on_request && (status == Status::partial || status == Status::failed));
    case Only::failed:
      return status != Status::ok && status != Status::partial && status != Status::cancelled &&
             status != Status::skipped && status != Status::unknown && status != Status::missing;
    case Only::oom:
      return status == Status::oom || status == Status::host_oom;
    case Only::unknown:
      return status == Status::unknown;
    case Only::stale:
      return (status == Status::ok || status == Status::partial) && !attempt.build.empty() &&
             !selection.build.empty() && attempt.build != selection.build;
    case Only::all:
      return true;
  }
  return false;
}

bool is_open(const ledger::AttemptState& attempt) {
  return attempt.last != ledger::Op::final;
}

}  // namespace

const ledger::AttemptState* deciding_attempt(const ledger::RunState& state) {
  const ledger::AttemptState* deciding = nullptr;
  for (const ledger::AttemptState& attempt : state.attempts) {
    const bool hidden =
        deciding != nullptr && deciding->status == Status::ok && attempt.status != Status::ok;
    if (!hidden) deciding = &attempt;
  }
  return deciding;
}

std::vector<Choice> select(const std::vector<ledger::PlannedPoint>& planned,
                           const std::map<std::string, ledger::RunState>& states,
                           const Selection& selection, const std::string& user) {
  const Only only = selection.only;
  const Verdict passed_over = only == Only::missing ? Verdict::done : Verdict::unselected;
  std::vector<Choice> choices;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    for (int repeat = 1; repeat <= planned[i].repeats; ++repeat) {
      Choice choice;
      choice.point = i;
      choice.ref = {.run = planned[i].run, .id = planned[i].id, .repeat = repeat, .attempt = 1};
      if (repeat > 1) choice.ref.run += fmt::format("-r{}", repeat);
      if (!selection.named.empty() && !selection.named.contains(choice.ref.run)) continue;
      const bool is_also = selection.also.contains(choice.ref.run);
      const auto found = states.find(choice.ref.run);
      if (found != states.end() && !found->second.attempts.empty()) {
        const ledger::RunState& state = found->second;
        const ledger::AttemptState& deciding = *deciding_attempt(state);
        choice.ref.attempt = state.attempts.back().attempt + 1;
        if (!is_open(deciding)) choice.status = deciding.status.value_or(Status::unknown);
        const bool others =
            std::ranges::any_of(state.attempts, [&](const auto& a) { return a.user != user; });
        if (std::ranges::any_of(state.attempts, is_open)) {
          choice.verdict = Verdict::running;
          choice.status.reset();
        } else if (others && deciding.user != user) {
          choice.verdict = Verdict::others;
        } else if ((selection.only_also || !wanted(deciding, selection)) && !is_also) {
          choice.verdict = passed_over;
        } else {
          // What no cluster ever took was no attempt at it.
          const auto had = std::ranges::count_if(state.attempts, [](const auto& attempt) {
            return attempt.confirmed || attempt.status != Status::missing;
          });
          const bool spent = selection.most_attempts > 0 && had >= selection.most_attempts;
          choice.verdict = spent ? Verdict::exhausted : Verdict::start;
        }
      } else if (!is_also &&
                 (selection.only_also || (only != Only::missing && only != Only::all))) {
        choice.verdict = Verdict::unselected;
      }
      choices.push_back(std::move(choice));
    }
  }
  return choices;
}

void require_named_free(const std::vector<Choice>& choices,
                        const std::map<std::string, ledger::RunState>& states,
                        const Selection& selection) {
  if (selection.named.empty()) return;
  for (const Choice& choice : choices) {
    if (choice.verdict == Verdict::running) {
      throw Error(ExitCode::refused, choice.ref.run, "an attempt of it has not ended",
                  "end it with submit cancel first");
    }
    if (choice.verdict == Verdict::others) {
      throw Error(ExitCode::refused, choice.ref.run,
                  std::string("is ") + deciding_attempt(states.at(choice.ref.run))->user + "'s run",
                  "only its user can run it again");
    }
  }
}

}  // namespace tessera::submit
