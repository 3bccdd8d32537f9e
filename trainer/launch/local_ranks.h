// `trainer --nproc N`: N ranks of one run on this machine.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

namespace tessera::trainer {

// How long the others have when a rank has failed.
struct Patience {
  std::chrono::milliseconds to_speak{10'000};  // before SIGTERM: to say so in the log
  std::chrono::milliseconds to_end{10'000};    // from there to SIGKILL
};

// Starts `command` N times (N >= 1; command[0] is a path or in PATH), each as a rank (TESSERA_RANK,
// ...; place.h) with the store's socket inherited by rank 0, and waits for all. Each is a process
// group of its own, so that what a terminal or a scheduler sends to this process's group reaches
// the ranks once. stdin is empty, stdout and stderr are this process's.
//
// A rank that ends by itself with a code that is not 0, or by a signal, ends the others, and stderr
// says which one it was: they get time to say so in the log, then SIGTERM, then SIGKILL. A signal
// that reaches this process (`stop`, its number) is handed on to all ranks once. Ranks are killed
// if the calling thread dies.
//
// Returns rank 0's exit code (128 + n: by signal n) unless it is 0 or a communication error, which
// follows from another's end; else that of the first rank that failed otherwise, else the first
// that is not 0. Error(failed) if a rank cannot be started; none is left then.
int run_local_ranks(int ranks, const std::vector<std::string>& command,
                    const std::atomic<int>& stop, const Patience& patience = {});

}  // namespace tessera::trainer
