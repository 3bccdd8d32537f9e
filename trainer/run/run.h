// SPDX-License-Identifier: Apache-2.0
// A whole run: from a specification to the footer of its log.
#pragma once

#include <atomic>

#include "lib/point/run_spec.h"
#include "trainer/launch/place.h"

namespace tessera::trainer {

// Trains what `spec` says, writes every record, prints progress for people (stdout, or stderr where
// the records go to stdout). Returns the exit code that docs/exit-codes.md gives for the footer's
// status; a fault is also printed, one line on stderr. Error(log_not_writable) if there is no log
// to say it in. `stop` is set by signals, to the signal's number: the run then ends after the
// running microbatch with a true footer: partial, or without a measured step failed, ended by
// `interrupted`; of SIGUSR1 partial or timeout, ended by `time-limit`. `start_s`: monotonic
// seconds when the process began.
//
// With several ranks (`place`) each calls it. They meet (trainer/launch/store.h; `variable` looks
// up where), train NO_SHARD over Gloo, and end behind the same step when `stop` of any of them is
// set. Rank 0 writes the records and prints. A rank that fails tells the others why; the footer
// says it as "rank 2: ...", with the status that this reason has, and each rank but rank 0 returns
// its own code if it failed by itself, else that of comm-error, after an event in a log of its own.
int run_training(const sweep::RunSpec& spec, const std::atomic<int>& stop, double start_s,
                 const Place& place = {}, const Environment& variable = process_environment);

}  // namespace tessera::trainer
