// `trainer --nproc N`: N ranks of one run on this machine.
#pragma once

#include <atomic>
#include <string>
#include <vector>

namespace tessera::trainer {

// Starts `command` N times, each as a rank (TESSERA_RANK, ...; place.h) with the store's socket
// inherited by rank 0, and waits for all. A rank that ends by itself with a code that is not 0, or
// by a signal, ends the others: they get 10 s to say so in the log, then SIGTERM, then SIGKILL.
// Signals that reach this process (`stop`) are handed on to all ranks. Ranks end if this process
// dies. Returns rank 0's exit code unless it is 0 or a communication error, else that of the rank
// that failed first.
int run_local_ranks(int ranks, const std::vector<std::string>& command,
                    const std::atomic<int>& stop);

}  // namespace tessera::trainer
