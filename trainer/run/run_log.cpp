#include "trainer/run/run_log.h"

#include <sys/resource.h>

#include <cstdlib>

#include "lib/base/numbers.h"

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

int restart_count() {
  const char* text = std::getenv("SLURM_RESTART_COUNT");
  const auto count = parse_integer(text != nullptr ? text : "");
  return count && *count >= 0 && *count < 1000000 ? static_cast<int>(*count) : 0;
}

runlog::Writer open_log(const sweep::RunSpec& spec, int rank, int attempt) {
  runlog::Origin origin{.project = spec.project,
                        .run = spec.run,
                        .id = spec.id,
                        .repeat = spec.repeat,
                        .attempt = attempt,
                        .restart = restart_count(),
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
