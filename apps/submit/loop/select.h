// SPDX-License-Identifier: Apache-2.0
// Which attempts a submit starts: a pure function of what was planned and of what the ledger knows.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/base/names.h"
#include "lib/ledger/ledger.h"

namespace tessera::submit {

enum class Only : std::uint8_t {
  missing,  // never run, cancelled, or interrupted
  failed,   // every final status but ok, partial, cancelled, skipped, unknown
  oom,      // oom and host-oom
  unknown,  // handed over once, and the cluster no longer knows what became of it
  stale,    // ended ok or partial, but with another build of the trainer
  all,      // also what is done: one more attempt each
};

struct Selection {
  Only only = Only::missing;
  bool force = false;          // runs whose end is unknown too
  int most_attempts = 0;       // runs that had as many are passed over; 0: no limit
  std::set<std::string> also;  // runs that are started as well, though they have ended
  bool only_also = false;      // no others are
  std::string build;  // of the trainer that would run now; empty: not known, nothing is stale
  // Not empty: these runs are started, however they ended, and no other; `only` says nothing then.
  std::set<std::string> named;
};

enum class Verdict : std::uint8_t {
  start,       // a new attempt
  done,        // ended, and `missing` asks only for what has not
  unselected,  // not among what another selection than `missing` asks for
  running,     // an attempt is under way
  others,      // another user's, not touched
  exhausted,   // had as many attempts as it may have
};

struct Choice {
  ledger::RunRef ref;     // attempt: the one to start
  std::size_t point = 0;  // index into the planned points
  Verdict verdict = Verdict::start;
  std::optional<runlog::Status> status;  // of the attempt that decides; nothing: never run or open
};

// The attempt that speaks for a run: the newest ok one, else the newest. nullptr: none.
const ledger::AttemptState* deciding_attempt(const ledger::RunState& state);

// One choice per point and repeat, points outermost; of named runs alone, if any are. `planned`
// holds id and run of the first
// repeat. `states` must be reconciled: an attempt without a final status counts as running.
std::vector<Choice> select(const std::vector<ledger::PlannedPoint>& planned,
                           const std::map<std::string, ledger::RunState>& states,
                           const Selection& selection, const std::string& user);

// Error(refused) if a named run cannot be started: an attempt of it has not ended, or it is another
// user's.
void require_named_free(const std::vector<Choice>& choices,
                        const std::map<std::string, ledger::RunState>& states,
                        const Selection& selection);

}  // namespace tessera::submit

namespace tessera {
template <>
struct Names<submit::Only> {
  using enum submit::Only;
  static constexpr std::pair<submit::Only, std::string_view> table[] = {
      {missing, "missing"}, {failed, "failed"}, {oom, "oom"},
      {unknown, "unknown"}, {stale, "stale"},   {all, "all"}};
};
}  // namespace tessera
