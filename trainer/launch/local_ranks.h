// SPDX-License-Identifier: Apache-2.0
// The launcher `trainer --nproc N`: N ranks of one run on this machine.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

namespace tessera::trainer {

// How long the other ranks have once one has failed.
struct Patience {
  std::chrono::milliseconds to_speak{10'000};  // before SIGTERM, to report it in the log
  std::chrono::milliseconds to_end{10'000};    // from SIGTERM to SIGKILL
};

// Starts `command` N times (N >= 1; command[0] is a path or in PATH), each as a rank (TESSERA_RANK,
// ...; place.h), and waits for all. Rank 0 inherits the store's socket. Each rank is a process
// group of its own, so that a signal of a terminal or a scheduler to this process's group reaches
// the ranks once. Their stdin is empty; stdout and stderr are this process's.
//
// If a rank ends by itself with a code other than 0, or by a signal, the others are ended too, and
// stderr says which rank it was. The others get time to report it in the log, then SIGTERM, then
// SIGKILL. A signal that reaches this process (`stop`, its number) is forwarded to all ranks once.
// Ranks are killed if the calling thread dies.
//
// Returns rank 0's exit code (128 + n: by signal n), unless it is 0 or a communication error, which
// follows from another rank's end. Otherwise it returns the code of the first rank that failed
// differently, or the first that is not 0. Error(failed) if a rank cannot be started; none is left
// then.
int run_local_ranks(int ranks, const std::vector<std::string>& command,
                    const std::atomic<int>& stop, const Patience& patience = {});

}  // namespace tessera::trainer
