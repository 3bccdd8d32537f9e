#include "lib/base/command.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "lib/base/file.h"

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

// Reads both until both are closed, so that a full pipe never blocks the program.
void drain(const FileDescriptor& out, const FileDescriptor& err, CommandResult& result) {
  std::array<pollfd, 2> files{{{.fd = out.get(), .events = POLLIN, .revents = 0},
                               {.fd = err.get(), .events = POLLIN, .revents = 0}}};
  std::array<std::string*, 2> texts{&result.out, &result.err};
  std::array<char, 4096> chunk{};
  while (files[0].fd >= 0 || files[1].fd >= 0) {
    if (::poll(files.data(), files.size(), -1) < 0 && errno != EINTR) return;
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (files[i].fd < 0 || files[i].revents == 0) continue;
      const ssize_t got = ::read(files[i].fd, chunk.data(), chunk.size());
      if (got > 0) texts[i]->append(chunk.data(), static_cast<std::size_t>(got));
      if (got == 0 || (got < 0 && errno != EINTR)) files[i].fd = -1;
    }
  }
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& arguments) {
  Pipe out = make_pipe(arguments.front());
  Pipe err = make_pipe(arguments.front());
  std::vector<std::string> copies = arguments;
  std::vector<char*> pointers;
  for (std::string& text : copies) pointers.push_back(text.data());
  pointers.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out.write.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, err.write.get(), STDERR_FILENO);
  pid_t pid = 0;
  const int fault =
      ::posix_spawnp(&pid, pointers[0], &actions, nullptr, pointers.data(), ::environ);
  ::posix_spawn_file_actions_destroy(&actions);
  CommandResult result;
  if (fault == ENOENT || fault == EACCES || fault == ENOEXEC) return {.exit_code = 127};
  if (fault != 0) throw_errno(arguments.front(), "cannot be started", fault);
  out.write = FileDescriptor();
  err.write = FileDescriptor();
  drain(out.read, err.read, result);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

}  // namespace tessera
