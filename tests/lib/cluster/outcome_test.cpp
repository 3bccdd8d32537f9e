#include "lib/cluster/outcome.h"

#include <doctest/doctest.h>

using namespace tessera;
using namespace tessera::cluster;
using runlog::Status;

TEST_CASE(
    "a cancelled attempt: figures stay, an end without any is cancelled, other ends are theirs") {
  CHECK(outcome_of_cancelled({Status::partial, "interrupted by signal 15"}) ==
        Outcome{Status::partial, "cancelled by its user"});
  CHECK(outcome_of_cancelled({Status::failed, "interrupted by signal 15"}) ==
        Outcome{Status::cancelled, "by its user"});
  CHECK(outcome_of_cancelled({Status::failed, "ended by signal 15 (Terminated)"}) ==
        Outcome{Status::cancelled, "by its user"});
  for (const Status status : {Status::ok, Status::oom, Status::nan, Status::start_fail})
    CHECK(outcome_of_cancelled({status, "why"}) == Outcome{status, "why"});
}
