// Whose log a run's records go to, and what an exit code is called in it.
#pragma once

#include <cstdint>

#include "lib/base/error.h"
#include "lib/point/run_spec.h"
#include "lib/runlog/footer.h"
#include "lib/runlog/writer.h"

namespace tessera::trainer {

// The footer's status of a run that ends with this code (docs/exit-codes.md).
runlog::Status status_of(ExitCode code);

// How often Slurm has started this job again; 0 elsewhere.
int restart_count();

// That of a rank in the run's folder, stdout if it has none. Error(log_not_writable).
runlog::Writer open_log(const sweep::RunSpec& spec, int rank, int attempt);

// Of this process, its maximum so far.
std::int64_t peak_resident_bytes();

}  // namespace tessera::trainer
