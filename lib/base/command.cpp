// SPDX-License-Identifier: Apache-2.0
#include "lib/base/command.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>

#include "lib/base/clock.h"
#include "lib/base/file.h"
#include "lib/base/spawn.h"

namespace tessera {

namespace {

struct Pipe {
  FileDescriptor read, write;
};

Pipe make_pipe(const std::string& program) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_errno(program, "no pipe can be made", errno);
  return {.read = FileDescriptor(ends[0]), .write = FileDescriptor(ends[1])};
}

// A file rather than a pipe: a program that does not read it neither blocks nor ends us.
FileDescriptor standard_input(const std::string& text, const std::string& program) {
  if (text.empty()) return FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  FileDescriptor file(::memfd_create("input", MFD_CLOEXEC));
  if (!file) throw_errno(program, "no input can be made", errno);
  write_all(file, text, "input");
  ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

// Reads both until both are closed, so that a full pipe never blocks the program. False: `limit_s`
// were over before; 0: no limit.
bool drain(const FileDescriptor& out, const FileDescriptor& err, double limit_s,
           CommandResult& result) {
  const double end_s = monotonic_seconds() + limit_s;
  std::array<pollfd, 2> files{{{.fd = out.get(), .events = POLLIN, .revents = 0},
                               {.fd = err.get(), .events = POLLIN, .revents = 0}}};
  std::array<std::string*, 2> texts{&result.out, &result.err};
  std::array<char, 4096> chunk{};
  while (files[0].fd >= 0 || files[1].fd >= 0) {
    int wait_ms = -1;
    if (limit_s > 0) {
      const double left_s = end_s - monotonic_seconds();
      if (left_s <= 0) return false;
      wait_ms = static_cast<int>(std::min(left_s * 1000 + 1, double{INT_MAX}));
    }
    if (::poll(files.data(), files.size(), wait_ms) < 0) {
      if (errno != EINTR) return true;
      continue;
    }
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (files[i].fd < 0 || files[i].revents == 0) continue;
      const ssize_t got = ::read(files[i].fd, chunk.data(), chunk.size());
      if (got > 0) texts[i]->append(chunk.data(), static_cast<std::size_t>(got));
      if (got == 0 || (got < 0 && errno != EINTR)) files[i].fd = -1;
    }
  }
  return true;
}

// Between fork and exec: async-signal-safe calls only (execvpe is in glibc). The errno of a failed
// exec goes to `fault`.
struct Child {
  int in, out, err, fault;
  bool own_group, dies_with_caller;
  pid_t caller;
};

[[noreturn]] void become(const Child& child, char* const* arguments, char* const* variables) {
  if (child.own_group) ::setpgid(0, 0);
  if (child.dies_with_caller) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != child.caller) ::_exit(kNoProgram);  // it ended before it could be told
  }
  ::dup2(child.in, STDIN_FILENO);
  ::dup2(child.out, STDOUT_FILENO);
  ::dup2(child.err, STDERR_FILENO);
  ::execvpe(arguments[0], arguments, variables);
  const int fault = errno;
  [[maybe_unused]] const ssize_t wrote = ::write(child.fault, &fault, sizeof fault);
  ::_exit(kNoProgram);
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& arguments,
                          const CommandOptions& options) {
  const std::string& program = arguments.front();
  const FileDescriptor in = standard_input(options.input, program);
  Pipe out = make_pipe(program);
  Pipe err = make_pipe(program);
  Pipe fault = make_pipe(program);
  std::vector<std::string> words = arguments;
  std::vector<std::string> variables = options.environment.value_or(std::vector<std::string>());
  const std::vector<char*> word_pointers = exec_pointers(words);
  const std::vector<char*> variable_pointers = exec_pointers(variables);
  const bool limited = options.limit_s > 0;
  const Child child{.in = in.get(),
                    .out = out.write.get(),
                    .err = err.write.get(),
                    .fault = fault.write.get(),
                    .own_group = limited,
                    .dies_with_caller = options.dies_with_caller,
                    .caller = ::getpid()};
  const pid_t pid = ::fork();
  if (pid < 0) throw_errno(program, "cannot be started", errno);
  if (pid == 0) {
    become(child, word_pointers.data(), options.environment ? variable_pointers.data() : ::environ);
  }
  if (limited) ::setpgid(pid, pid);  // whichever of the two comes first
  out.write = FileDescriptor();
  err.write = FileDescriptor();
  fault.write = FileDescriptor();
  int cause = 0;
  ssize_t got = 0;
  do {
    got = ::read(fault.read.get(), &cause, sizeof cause);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof cause) {
    wait_for_exit(pid);
    if (cause == ENOENT || cause == EACCES || cause == ENOEXEC) return {.exit_code = kNoProgram};
    throw_errno(program, "cannot be started", cause);
  }
  CommandResult result;
  if (!drain(out.read, err.read, options.limit_s, result)) {
    result.timed_out = true;
    ::kill(-pid, SIGKILL);
  }
  result.exit_code = wait_for_exit(pid);
  return result;
}

}  // namespace tessera
