// SPDX-License-Identifier: Apache-2.0
#include "trainer/run/run_log.h"

#include <sys/resource.h>

namespace tessera::trainer {

using runlog::Status;

Status status_of(ExitCode code) {
  switch (code) {
    case ExitCode::ok:
      return Status::ok;
    case ExitCode::spec:
    case ExitCode::unsupported:
    case ExitCode::wrong_device:
    case ExitCode::log_not_writable:
      return Status::start_fail;
    case ExitCode::oom:
      return Status::oom;
    case ExitCode::host_oom:
      return Status::host_oom;
    case ExitCode::nan:
      return Status::nan;
    case ExitCode::comm_error:
      return Status::comm_error;
    case ExitCode::timeout:
      return Status::timeout;
    default:
      return Status::failed;
  }
}

runlog::Writer open_log(const sweep::RunSpec& spec, int rank, int attempt, int restart) {
  runlog::Origin origin{.project = spec.project,
                        .run = spec.run,
                        .id = spec.id,
                        .repeat = spec.repeat,
                        .attempt = attempt,
                        .restart = restart,
                        .rank = rank};
  if (spec.run_dir.empty()) return runlog::Writer::to_stdout(std::move(origin));
  return runlog::Writer::to_folder(spec.run_dir, std::move(origin));
}

std::int64_t peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace tessera::trainer
