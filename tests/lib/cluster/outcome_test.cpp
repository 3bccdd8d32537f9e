// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/outcome.h"

#include <doctest/doctest.h>

#include "lib/runlog/writer.h"
#include "tests/lib/runlog/samples.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::cluster;
using runlog::EndedBy;
using runlog::Status;

TEST_CASE(
    "a cancelled attempt: figures stay, an end without any is cancelled, other ends are theirs") {
  const Outcome partial = outcome_of_cancelled({Status::partial, "interrupted"});
  CHECK(partial.status == Status::partial);
  CHECK(partial.ended_by == EndedBy::cancelled);
  CHECK(partial.reason == "cancelled by its user");
  CHECK(outcome_of_cancelled({Status::failed, "interrupted"}) ==
        Outcome{Status::cancelled, "by its user"});
  CHECK(outcome_of_cancelled({Status::failed, "ended by signal 15 (Terminated)"}) ==
        Outcome{Status::cancelled, "by its user"});
  for (const Status status : {Status::ok, Status::oom, Status::nan, Status::start_fail})
    CHECK(outcome_of_cancelled({status, "why"}) == Outcome{status, "why"});
}

namespace {

// The outcome of an attempt whose footer says this and whose cluster says `said`.
Outcome outcome_with_footer(Status status, EndedBy ended_by, const std::string& reason,
                            std::optional<Status> said) {
  const test::TemporaryFolder folder;
  auto log = runlog::Writer::to_folder(folder.path(), {.id = "0123456789ab"});
  runlog::Footer footer = test::sample_footer();
  footer.status = status;
  footer.ended_by = ended_by;
  footer.reason = reason;
  log.end(footer);
  return outcome_of_attempt(folder.path(), 1, {.status = said, .reason = "the cluster's words"});
}

}  // namespace

TEST_CASE("only a run that was interrupted is told by its cluster what ended it") {
  const Outcome timeout =
      outcome_with_footer(Status::failed, EndedBy::interrupted, "any words", Status::timeout);
  CHECK(timeout.status == Status::timeout);
  CHECK(timeout.ended_by == EndedBy::time_limit);
  CHECK(timeout.reason == "the cluster's words");
  const Outcome preempted =
      outcome_with_footer(Status::partial, EndedBy::interrupted, "any words", Status::preempted);
  CHECK(preempted.status == Status::partial);
  CHECK(preempted.ended_by == EndedBy::preempted);
  const Outcome cancelled =
      outcome_with_footer(Status::partial, EndedBy::interrupted, "any words", Status::cancelled);
  CHECK(cancelled.ended_by == EndedBy::cancelled);
  CHECK(cancelled.reason == "cancelled by its user");
  // Whatever its reason says.
  const Outcome own =
      outcome_with_footer(Status::failed, EndedBy::error, "interrupted", Status::timeout);
  CHECK(own.status == Status::failed);
  CHECK(own.ended_by == EndedBy::error);
  CHECK(own.reason == "interrupted");
  CHECK(outcome_with_footer(Status::failed, EndedBy::interrupted, "x", {}).ended_by ==
        EndedBy::interrupted);
}
