// SPDX-License-Identifier: Apache-2.0
// The log that a rank writes, and the status of an exit code.
#pragma once

#include <cstdint>

#include "lib/base/error.h"
#include "lib/point/run_spec.h"
#include "lib/runlog/footer.h"
#include "lib/runlog/writer.h"

namespace tessera::trainer {

// Returns the footer's status of a run that ends with this code (docs/exit-codes.md).
runlog::Status status_of(ExitCode code);

// Opens a rank's log in the run's folder, or stdout if it has none. `restart`: how often the
// scheduler has restarted the attempt. Error(log_not_writable).
runlog::Writer open_log(const sweep::RunSpec& spec, int rank, int attempt, int restart);

// Returns the process's maximum resident memory so far.
std::int64_t peak_resident_bytes();

}  // namespace tessera::trainer
