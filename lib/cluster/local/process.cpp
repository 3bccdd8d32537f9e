// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/local/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

#include "lib/base/command.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/spawn.h"

namespace tessera::cluster {

namespace fs = std::filesystem;

namespace {

fs::path pid_file(const fs::path& run_dir, int attempt) {
  return run_dir / fmt::format("run.{}.pid", attempt);
}

// Between fork and exec: async-signal-safe calls only.
[[noreturn]] void become_trainer(int go, int output, const char* program, char* const* arguments,
                                 char* const* variables) {
  ::setsid();
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGTERM, SIG_DFL);
  ::signal(SIGPIPE, SIG_DFL);
  char byte = 0;
  ssize_t got = 0;
  do {
    got = ::read(go, &byte, 1);
  } while (got < 0 && errno == EINTR);
  if (got != 1) ::_exit(0);  // the submitter died before it had recorded this process
  if (const int nothing = ::open("/dev/null", O_RDONLY); nothing >= 0)
    ::dup2(nothing, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::execve(program, arguments, variables);
  ::_exit(kNoProgram);
}

}  // namespace

void require_startable(const fs::path& trainer) {
  if (::access(trainer.c_str(), X_OK) != 0) {
    throw Error(ExitCode::refused, trainer.string(), "the trainer is not there or not executable",
                "build it, or name it in the cluster file as trainer.path");
  }
}

ProcessRef start_local(const LocalStart& start,
                       const std::function<void(const ProcessRef&)>& accepted) {
  require_startable(start.trainer);
  make_directories(start.run_dir);
  const fs::path spec = start.run_dir / fmt::format("run.{}.json", start.attempt);
  if (fs::exists(spec))
    throw Error(ExitCode::conflict, spec.string(), "this attempt is there already");
  write_file_atomically(spec, start.spec_json + "\n");
  const fs::path output_path = start.run_dir / fmt::format("out.{}.0.0", start.attempt);
  const FileDescriptor output(
      ::open(output_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!output) throw_errno(output_path, "cannot be written", errno);

  std::array<int, 2> pipe_ends{};
  if (::pipe2(pipe_ends.data(), O_CLOEXEC) != 0)
    throw_errno(start.run_dir, "no pipe can be made", errno);
  FileDescriptor go_read(pipe_ends[0]);
  FileDescriptor go_write(pipe_ends[1]);

  std::vector<std::string> arguments{start.trainer.string()};
  if (start.ranks > 1) arguments.insert(arguments.end(), {"--nproc", std::to_string(start.ranks)});
  arguments.insert(arguments.end(), {"--spec", spec.string()});
  std::vector<std::string> variables = environment_with(start.env, start.unset);
  const auto argument_pointers = exec_pointers(arguments);
  const auto variable_pointers = exec_pointers(variables);
  const pid_t child = ::fork();
  if (child < 0) throw_errno(start.trainer, "no process can be made", errno);
  if (child == 0) {
    // Its own copy of the writing end would keep it waiting for ever if the submitter died.
    ::close(go_write.get());
    become_trainer(go_read.get(), output.get(), start.trainer.c_str(), argument_pointers.data(),
                   variable_pointers.data());
  }
  try {
    const ProcessRef process{.host = host_name(),
                             .boot = boot_id(),
                             .pid = child,
                             .start_ticks = start_ticks(child).value_or(0)};
    write_file_atomically(pid_file(start.run_dir, start.attempt),
                          process_json(process, start.user));
    accepted(process);
    if (::write(go_write.get(), "g", 1) != 1)
      throw_errno(start.trainer, "cannot be started", errno);
    return process;
  } catch (...) {
    go_write = FileDescriptor();  // it ends by itself
    ::waitpid(child, nullptr, 0);
    throw;
  }
}

std::optional<ProcessRef> local_process(const fs::path& run_dir, int attempt) {
  const auto text = read_file_if_exists(pid_file(run_dir, attempt));
  return text ? parse_process(*text) : std::nullopt;
}

bool signal_local(const ProcessRef& process, int signal_number) {
  if (liveness(process) != Liveness::alive) return false;
  return ::kill(-process.pid, signal_number) == 0 || ::kill(process.pid, signal_number) == 0;
}

}  // namespace tessera::cluster
