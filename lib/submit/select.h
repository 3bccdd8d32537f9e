// Which attempts a submit starts: a pure function of what was planned and of what the ledger knows.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/names.h"
#include "lib/ledger/ledger.h"

namespace tessera::submit {

enum class Only : std::uint8_t {
  missing,  // never run, cancelled, or interrupted
  failed,   // every final status but ok, partial, cancelled, skipped, unknown
  oom,      // oom and host-oom
  all,      // also what is done: one more attempt each
};

enum class Verdict : std::uint8_t {
  start,       // a new attempt
  done,        // ended, and `missing` asks only for what has not
  unselected,  // not among what `failed` or `oom` asks for
  running,     // an attempt is under way
  others,      // another user's, not touched
};

struct Choice {
  ledger::RunRef ref;     // attempt: the one to start
  std::size_t point = 0;  // index into the planned points
  Verdict verdict = Verdict::start;
  std::optional<runlog::Status> status;  // of the attempt that decides; nothing: never run or open
};

// The attempt that speaks for a run: the newest ok one, else the newest. nullptr: none.
const ledger::AttemptState* deciding_attempt(const ledger::RunState& state);

// One choice per point and repeat, points outermost. `planned` holds id and run of the first
// repeat. `states` must be reconciled: an attempt without a final status counts as running.
std::vector<Choice> select(const std::vector<ledger::PlannedPoint>& planned,
                           const std::map<std::string, ledger::RunState>& states, Only only,
                           const std::string& user);

}  // namespace tessera::submit

namespace tessera {
template <>
struct Names<submit::Only> {
  using enum submit::Only;
  static constexpr std::pair<submit::Only, std::string_view> table[] = {
      {missing, "missing"}, {failed, "failed"}, {oom, "oom"}, {all, "all"}};
};
}  // namespace tessera
